"""The embedded chain's constants that are no part of Ethereum's rules."""

BLOCK_GAS = 30_000_000
"""Gas of a block, and so of its one transaction."""
BASE_FEE = 1_000_000
"""wei per gas, for ever: a transaction of 100,000 gas costs 2e-7 ETH with the tip."""
TIP = 1_000_000
"""wei per gas that is suggested on top."""
RUN_SECONDS = 20.0
"""The longest that one call, estimate or transaction may run."""
