"""A filter of system calls for the jail: what no program of a coding problem needs, and what holes in kernels are in.

Classic BPF over `struct seccomp_data` (number, architecture, arguments), as seccomp(2) describes it. What is refused
gets EPERM; what the C library has another way for, or what is of another architecture, gets ENOSYS.
"""

import errno
import platform
import struct

DENIED = """
mount 165 40 umount2 166 39 pivot_root 155 41 chroot 161 51 move_mount 429 429 open_tree 428 428 fsopen 430 430
fsconfig 431 431 fsmount 432 432 fspick 433 433 mount_setattr 442 442 name_to_handle_at 303 264
open_by_handle_at 304 265 swapon 167 224 swapoff 168 225 quotactl 179 60 quotactl_fd 443 443 fanotify_init 300 262
ptrace 101 117 process_vm_readv 310 270 process_vm_writev 311 271 process_madvise 440 440 pidfd_getfd 438 438
kcmp 312 272 perf_event_open 298 241 lookup_dcookie 212 18
bpf 321 280 init_module 175 105 finit_module 313 273 delete_module 176 106 kexec_load 246 104
kexec_file_load 320 294 reboot 169 142 acct 163 89 syslog 103 116 vhangup 153 58 nfsservctl 180 42
add_key 248 217 request_key 249 218 keyctl 250 219 userfaultfd 323 282 memfd_secret 447 447
unshare 272 97 setns 308 268 socket 41 198 sethostname 170 161 setdomainname 171 162 personality 135 92
settimeofday 164 170 clock_settime 227 112 clock_adjtime 305 266 adjtimex 159 171
mbind 237 235 migrate_pages 256 238 move_pages 279 239 set_mempolicy 238 237 set_mempolicy_home_node 450 450
shmget 29 194 semget 64 190 msgget 68 186 mq_open 240 180
iopl 172 -1 ioperm 173 -1 modify_ldt 154 -1 uselib 134 -1 ustat 136 -1 sysfs 139 -1
"""
ABSENT = "io_uring_setup 425 425 io_uring_enter 426 426 io_uring_register 427 427 io_setup 206 0 clone3 435 435"
"""Names with their numbers on x86_64 and aarch64; -1: not there. clone3's flags cannot be seen from a filter."""
MACHINES = {"x86_64": (0xC000003E, 1, 56), "aarch64": (0xC00000B7, 2, 220)}
"""AUDIT_ARCH of <linux/audit.h>, the column above, and the number of clone."""
NAMESPACES = 0x7E020080
"""Flags of clone that make new namespaces: time, mount, cgroup, UTS, IPC, user, PID and network."""
X32 = 0x40000000
LOAD, EQUAL, AT_LEAST, ANY_OF, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16
"""Bytes from the beginning of `struct seccomp_data`; of the argument the lower half, on these two machines."""


def _code(operation: int, value: int, skip_if: int = 0, skip_unless: int = 0) -> bytes:
    """`struct sock_filter`. skip: how many instructions are left out."""
    return struct.pack("=HBBI", operation, skip_if, skip_unless, value)


def numbers(table: str, machine: str) -> list[int]:
    return [number for number in map(int, table.split()[MACHINES[machine][1] :: 3]) if number >= 0]


def jail_filter(machine: str = platform.machine()) -> bytes:
    """For `bwrap --seccomp`; empty on a machine whose numbers are not known here."""
    if machine not in MACHINES:
        return b""
    architecture, _, clone = MACHINES[machine]
    refuse = {number: _code(RETURN, REFUSE | errno.EPERM) for number in numbers(DENIED, machine)}
    absent = _code(RETURN, REFUSE | errno.ENOSYS)
    refuse |= dict.fromkeys(numbers(ABSENT, machine), absent)
    return b"".join([
        *(_code(LOAD, ARCHITECTURE), _code(EQUAL, architecture, 1), absent),
        *(_code(LOAD, NUMBER), _code(AT_LEAST, X32, 0, 1), absent),
        *(_code(EQUAL, number, 0, 1) + answer for number, answer in refuse.items()),
        *(_code(EQUAL, clone, 0, 3), _code(LOAD, FIRST_ARGUMENT), _code(ANY_OF, NAMESPACES, 0, 1)),
        *(_code(RETURN, REFUSE | errno.EPERM), _code(RETURN, ALLOW)),
    ])  # fmt: skip
