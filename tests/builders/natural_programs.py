"""Programs in the ways in which people write them, for the tests of `code/agreement`."""

_WRITTEN = (
    ("[int]", "nums", """
sorted([x for x in nums if x % 2 == 1], reverse=True)
---
    odds = []
    for n in nums:
        if n % 2 != 0:
            odds.append(n)
    odds.sort()
    odds.reverse()
    return odds
---
    odds = [n for n in nums if n & 1]
    odds.sort(reverse=True)
    return odds
---
sorted(filter(lambda n: n % 2, nums))[::-1]
---
    result = list(nums)
    result = [r for r in result if r % 2]
    result.sort(key=lambda v: -v)
    return result
---
    out = []
    i = 0
    while i < len(nums):
        if nums[i] % 2 == 1:
            out.append(nums[i])
        i += 1
    return sorted(out, reverse=True)
---
    out = []
    for v in nums:
        if v % 2 == 0:
            continue
        out.append(v)
    return sorted(out)[::-1]
---
    out = nums[:]
    for v in nums:
        if v % 2 == 0:
            out.remove(v)
    return sorted(out, reverse=True)
---
    out = []
    for v in sorted(nums, reverse=True):
        if v % 2 == 1:
            out.append(v)
    return out
---
[v for v in sorted(nums, reverse=True) if v % 2]
[v for v in reversed(sorted(nums)) if not v % 2 == 0]
---
from typing import List
def f(nums: List[int]) -> List[int]:
    def is_odd(n):
        return n % 2 == 1
    return sorted((n for n in nums if is_odd(n)), key=lambda n: n, reverse=True)
"""),
    ("[int]", "nums", """
sum(x % 10 for x in nums)
---
    total = 0
    for i, n in enumerate(nums):
        total += n % 10
    return total
---
    total = 0
    for i in range(len(nums)):
        total = total + (nums[i] % 10)
    return total
---
    if not nums:
        return 0
    return nums[0] % 10 + f(nums[1:])
---
    if len(nums) == 0:
        return 0
    head, *tail = nums
    return head % 10 + f(tail)
---
from functools import reduce
def f(nums):
    return reduce(lambda acc, n: acc + n % 10, nums, 0)
---
sum(map(lambda n: n % 10, nums))
---
    remainders = []
    for n in nums:
        remainders.append(n % 10)
    return sum(remainders)
---
    def go(i, acc):
        if i == len(nums):
            return acc
        return go(i + 1, acc + nums[i] % 10)
    return go(0, 0)
---
    total = 0
    for n in nums:
        q, r = divmod(n, 10)
        total += r
    return total
---
    total = 0
    for n in nums:
        total += n - 10 * (n // 10)
    return total
---
sum([int(n % 10) for n in nums])
---
    ans = 0
    for n in nums: ans += n % 10
    else:
        return ans
"""),
    ("[int]", "nums", """
max(x * 9 for x in nums if x % 2 == 0)
---
    evens = [x for x in nums if x % 2 == 0]
    return max(evens) * 9
---
    products = [9 * x for x in nums if not x % 2]
    products.sort()
    return products[-1]
---
    evens = list(filter(lambda x: x % 2 == 0, nums))
    largest = evens[0]
    for e in evens[1:]:
        if e > largest:
            largest = e
    return largest * 9
---
    values = sorted((x * 9 for x in nums if x % 2 == 0), reverse=True)
    return values[0]
---
    m = [x * 9 for x in nums if x % 2 == 0]
    best = m[0]
    for i in range(1, len(m)):
        best = m[i] if m[i] > best else best
    return best
---
from functools import reduce
def f(nums):
    return reduce(lambda a, b: a if a > b else b, [x * 9 for x in nums if x % 2 == 0])
"""),
    ("[int]", "nums", """
[x * 3 + 1 for x in nums]
---
    out = list(nums)
    for i in range(len(out)):
        x = out[i]
        out[i] = x * 3 + 1
    return out
"""),
    ("str", "s", """
s[:3][::-1]
---
    result = ''
    for ch in s[:3]:
        result = ch + result
    return result
---
''.join(reversed(s[:3]))
---
    chars = list(s[:3])
    chars.reverse()
    return ''.join(chars)
---
    first = s[0:3]
    out = []
    for i in range(len(first)):
        out.append(first[len(first) - 1 - i])
    return ''.join(out)
---
s[2::-1]
---
    t = s[:3]
    i = len(t) - 1
    r = ''
    while i >= 0:
        r += t[i]
        i -= 1
    return r
---
s[::-1][-3:]
"""),
    ("[int]", "nums", """
[x % 5 if x % 2 == 1 else x * x for x in nums]
---
    out = []
    for x in nums:
        if x % 2 == 1:
            out.append(x % 5)
        else:
            out.append(x ** 2)
    return out
---
    out = [0] * len(nums)
    for i, x in enumerate(nums):
        out[i] = x * x if x % 2 == 0 else x % 5
    return out
---
    for i in range(len(nums)):
        if nums[i] % 2:
            nums[i] = nums[i] % 5
        else:
            nums[i] = nums[i] * nums[i]
    return nums
---
    def g(x):
        if x % 2 == 0:
            return pow(x, 2)
        return x % 5
    return list(map(g, nums))
---
[(x * x, x % 5)[x % 2] for x in nums]
[x % 5 if x & 1 else x * x for x in nums]
---
    result = []
    for x in nums:
        y = x * x
        if x % 2 == 1:
            y = x % 5
        result += [y]
    return result
---
    def gen():
        for x in nums:
            if x % 2 == 1:
                yield x % 5
            else:
                yield x * x
    return list(gen())
---
[*(x % 5 if x % 2 != 0 else x * x for x in nums)]
---
    out = []
    for x in nums:
        match x % 2:
            case 1:
                out.append(x % 5)
            case _:
                out.append(x * x)
    return out
---
    copy = nums.copy()
    for i, v in enumerate(copy):
        copy[i] = v % 5 if v % 2 == 1 else v * v
    return copy
"""),
    ("[int]", "nums", """
[x for x in nums if x % 5 == 0][:3]
---
    out = []
    for x in nums:
        if len(out) == 3:
            break
        if x % 5 == 0:
            out.append(x)
    return out
---
    out = []
    for x in nums:
        if x % 5 == 0:
            out.append(x)
            if len(out) == 3:
                break
    return out
---
    out = []
    for x in nums:
        if x % 5 == 0 and len(out) < 3:
            out.append(x)
    return out
---
from itertools import islice
def f(nums):
    return list(islice((x for x in nums if x % 5 == 0), 3))
---
    count = 0
    out = []
    for x in nums:
        if x % 5 == 0 and count < 3:
            out.append(x)
            count += 1
    return out
---
    multiples = [x for x in nums if not x % 5]
    return multiples if len(multiples) <= 3 else multiples[:3]
---
    multiples = [x for x in nums if x % 5 == 0]
    return [multiples[i] for i in range(min(3, len(multiples)))]
---
[x for x in nums if x % 5 == 0][0:3:1]
---
    a = [x for x in nums if x % 5 == 0]
    while len(a) > 3:
        a.pop()
    return a
---
    a = [x for x in nums if x % 5 == 0]
    del a[3:]
    return a
"""),
    ("int", "x", """
x // 5 if x < 3 else x // 2
---
    if x < 3:
        d = 5
    else:
        d = 2
    return x // d
---
x // (5 if x < 3 else 2)
int(x // 2) if x >= 3 else int(x // 5)
---
import math
def f(x):
    return math.floor(x / 5) if x < 3 else math.floor(x / 2)
---
[x // 2, x // 5][x < 3]
divmod(x, 5 if x < 3 else 2)[0]
---
    small = x < 3
    return small * (x // 5) + (not small) * (x // 2)
---
{True: x // 5, False: x // 2}[x < 3]
---
    if x <= 2:
        return x // 5
    elif x > 2:
        return x // 2
"""),
)  # fmt: skip
"""Kind of the argument, its name, and programs that mean the same, of which the first is the plainest; a line of `---`
is between them. A line that is not indented is what `f` returns, one that is begins its body."""


def _programs(argument: str, text: str) -> list[str]:
    programs: list[str] = []
    for block in text.strip("\n").split("\n---\n"):
        if block.startswith(("def ", "from ", "import ")):
            programs.append(block)
        elif block.startswith(" "):
            programs.append(f"def f({argument}):\n{block}")
        else:
            programs += [f"def f({argument}):\n    return {line}" for line in block.splitlines()]
    return programs


PROGRAMS = [(kind, _programs(argument, text)) for kind, argument, text in _WRITTEN]
"""Kind of the argument, and programs that mean the same."""
