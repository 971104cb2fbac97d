// SPDX-License-Identifier: MIT
pragma solidity 0.8.29;

/// @title The coordinator of a swarm: who owns which peer id, which round is open, rewards, votes, bootnodes.
/// @notice Call-compatible with SwarmCoordinator 0.4.2; docs/contract.md lists every difference and its reason.
/// Rewards and votes are what peers say of themselves and of each other. Nothing here checks that they are earned.
contract SwarmCoordinator {
    // ---- limits: every string and list that a stranger sends is bounded

    uint256 public constant MAX_PEER_ID_LENGTH = 128; // bytes; ids in use have 46 or 52
    uint256 public constant MAX_PEERS_PER_EOA = 64;
    uint256 public constant MAX_WINNERS = 64;
    uint256 public constant MAX_LEADERBOARD_PAGE = 100; // entries of one answer
    uint256 public constant MAX_BOOTNODES = 64;
    uint256 public constant MAX_BOOTNODE_LENGTH = 256; // bytes
    uint256 private constant STAGES = 3;

    // ---- roles

    bytes32 public constant OWNER_ROLE = keccak256("OWNER_ROLE");
    bytes32 public constant STAGE_MANAGER_ROLE = keccak256("STAGE_MANAGER_ROLE");
    bytes32 public constant BOOTNODE_MANAGER_ROLE = keccak256("BOOTNODE_MANAGER_ROLE");

    // ---- upgrading, for who deploys behind an ERC-1967 proxy; without a proxy it always refuses

    string public constant UPGRADE_INTERFACE_VERSION = "5.0.0";
    bytes32 private constant IMPLEMENTATION_SLOT = bytes32(uint256(keccak256("eip1967.proxy.implementation")) - 1);
    address private immutable _self = address(this);

    // ---- state

    struct Peer {
        string id;
        address eoa; // zero: somebody voted for the id, nobody has registered it
        int256 totalReward;
    }

    struct Reward {
        bool submitted;
        int128 value;
    }

    struct Standing {
        uint32 count;
        uint32 position;
    }

    /// All peers with a count of at least 1, highest count first. A count only ever grows by one, so the peer changes
    /// places with the first of its equals and the order holds: the cost does not depend on how many peers there are.
    struct Board {
        uint32[] order; // peers
        uint32[] first; // by count: position of the first peer with it; only meaningful while there is one
        mapping(uint32 peer => Standing) standing;
    }

    bool private _initialized;
    uint64 private _stage;
    uint128 private _round;
    mapping(bytes32 role => mapping(address account => bool)) private _roles;

    Peer[] private _peers; // entry 0 is nobody, so that an unknown id has index 0
    mapping(bytes32 idHash => uint32 peer) private _peerOf;
    mapping(address eoa => uint32[] peers) private _peersOf;

    mapping(uint256 round => mapping(uint256 stage => mapping(uint32 peer => Reward))) private _rewards;
    mapping(uint256 round => mapping(uint32 voter => uint32[] winners)) private _ballots; // empty: has not voted
    mapping(uint256 round => mapping(uint32 peer => uint256 votes)) private _votes;
    Board private _winners;
    Board private _voters;

    string[] private _bootnodes;

    // ---- events

    event Initialized(uint64 version);
    event Upgraded(address indexed implementation);
    event RoleGranted(bytes32 indexed role, address indexed account, address indexed sender);
    event RoleRevoked(bytes32 indexed role, address indexed account, address indexed sender);
    event RoundAdvanced(uint256 indexed newRoundNumber);
    event StageAdvanced(uint256 indexed roundNumber, uint256 newStage);
    event PeerRegistered(address indexed eoa, string peerId);
    event CumulativeRewardsUpdated(address indexed account, string peerId, int256 totalRewards);
    event RewardSubmitted(
        address indexed account, uint256 indexed roundNumber, uint256 indexed stageNumber, int256 reward, string peerId
    );
    event WinnerSubmitted(address indexed account, string peerId, uint256 indexed roundNumber, string[] winners);
    event BootnodesAdded(address indexed manager, uint256 count);
    event BootnodeRemoved(address indexed manager, uint256 index);
    event AllBootnodesCleared(address indexed manager);

    // ---- errors of 0.4.2

    error InvalidInitialization();
    error OnlyOwner();
    error OnlyStageManager();
    error OnlyBootnodeManager();
    error PeerIdAlreadyRegistered();
    error InvalidRoundNumber();
    error InvalidStageNumber();
    error RewardAlreadySubmitted();
    error InvalidVoterPeerId();
    error WinnerAlreadyVoted();
    error InvalidVote();
    error InvalidBootnodeIndex();
    error UUPSUnauthorizedCallContext();
    error UUPSUnsupportedProxiableUUID(bytes32 slot);
    error ERC1967InvalidImplementation(address implementation);
    error ERC1967NonPayable();
    error FailedCall();

    // ---- errors of ours: bounds that 0.4.2 lacks

    error InvalidOwner();
    error InvalidPeerId();
    error TooManyPeers();
    error InvalidReward();
    error InvalidBootnode();
    error TooManyBootnodes();

    modifier onlyOwner() {
        if (!_roles[OWNER_ROLE][msg.sender]) revert OnlyOwner();
        _;
    }

    modifier onlyStageManager() {
        if (!_roles[STAGE_MANAGER_ROLE][msg.sender]) revert OnlyStageManager();
        _;
    }

    modifier onlyBootnodeManager() {
        if (!_roles[BOOTNODE_MANAGER_ROLE][msg.sender]) revert OnlyBootnodeManager();
        _;
    }

    /// @param owner_ receives all three roles.
    constructor(address owner_) {
        _initialize(owner_);
    }

    /// Only of use behind a proxy, whose storage the constructor has not seen. Pass the call to the proxy's constructor:
    /// whoever calls it first owns the swarm.
    function initialize(address owner_) external {
        _initialize(owner_);
    }

    function _initialize(address owner_) private {
        if (_initialized) revert InvalidInitialization();
        if (owner_ == address(0)) revert InvalidOwner();
        _initialized = true;
        _peers.push();
        _winners.first.push();
        _voters.first.push();
        _grant(OWNER_ROLE, owner_);
        _grant(STAGE_MANAGER_ROLE, owner_);
        _grant(BOOTNODE_MANAGER_ROLE, owner_);
        emit Initialized(1);
    }

    // ---- roles

    function grantRole(bytes32 role, address account) external onlyOwner {
        _grant(role, account);
    }

    /// The owner may revoke their own role, and nobody can give it back.
    function revokeRole(bytes32 role, address account) external onlyOwner {
        _roles[role][account] = false;
        emit RoleRevoked(role, account, msg.sender);
    }

    function hasRole(bytes32 role, address account) external view returns (bool) {
        return _roles[role][account];
    }

    function _grant(bytes32 role, address account) private {
        _roles[role][account] = true;
        emit RoleGranted(role, account, msg.sender);
    }

    // ---- rounds

    function stageCount() external pure returns (uint256) {
        return STAGES;
    }

    function currentRound() external view returns (uint256) {
        return _round;
    }

    function currentStage() external view returns (uint256) {
        return _stage;
    }

    /// Opens the next stage; after the last stage, the first stage of the next round.
    function updateStageAndRound() external onlyStageManager returns (uint256 round, uint256 stage) {
        (round, stage) = (_round, uint256(_stage) + 1);
        if (stage == STAGES) {
            (round, stage) = (round + 1, 0);
            emit RoundAdvanced(round);
        }
        (_round, _stage) = (uint128(round), uint64(stage));
        emit StageAdvanced(round, stage);
    }

    // ---- peers

    /// The first to name an id owns it: nothing proves that the sender holds the peer's key. Compare `getEoa` afterwards.
    function registerPeer(string calldata peerId) external {
        if (!_isPeerId(peerId)) revert InvalidPeerId();
        uint32 peer = _intern(peerId);
        if (_peers[peer].eoa != address(0)) revert PeerIdAlreadyRegistered();
        if (_peersOf[msg.sender].length == MAX_PEERS_PER_EOA) revert TooManyPeers();
        _peers[peer].eoa = msg.sender;
        _peersOf[msg.sender].push(peer);
        emit PeerRegistered(msg.sender, peerId);
    }

    function getEoa(string[] calldata peerIds) external view returns (address[] memory eoas) {
        eoas = new address[](peerIds.length);
        for (uint256 i; i < peerIds.length; ++i) {
            eoas[i] = _peers[_find(peerIds[i])].eoa;
        }
    }

    function getPeerId(address[] calldata eoas) external view returns (string[][] memory peerIds) {
        peerIds = new string[][](eoas.length);
        for (uint256 i; i < eoas.length; ++i) {
            peerIds[i] = _names(_peersOf[eoas[i]]);
        }
    }

    function _isPeerId(string calldata peerId) private pure returns (bool) {
        return bytes(peerId).length != 0 && bytes(peerId).length <= MAX_PEER_ID_LENGTH;
    }

    /// 0 when nobody has registered the id or voted for it.
    function _find(string calldata peerId) private view returns (uint32) {
        return _peerOf[keccak256(bytes(peerId))];
    }

    function _intern(string calldata peerId) private returns (uint32 peer) {
        bytes32 hash = keccak256(bytes(peerId));
        peer = _peerOf[hash];
        if (peer == 0) {
            peer = uint32(_peers.length);
            assert(peer != 0); // fails only behind a proxy that nobody has initialised
            _peerOf[hash] = peer;
            _peers.push().id = peerId;
        }
    }

    function _names(uint32[] storage peers) private view returns (string[] memory names) {
        names = new string[](peers.length);
        for (uint256 i; i < names.length; ++i) {
            names[i] = _peers[peers[i]].id;
        }
    }

    /// The sender's peer, which has to be registered to the sender.
    function _owned(uint32 peer) private view {
        if (peer == 0 || _peers[peer].eoa != msg.sender) revert InvalidVoterPeerId();
    }

    // ---- rewards

    /// One per round, stage and peer. Past rounds are open for ever, stages after the current one never.
    function submitReward(uint256 roundNumber, uint256 stageNumber, int256 reward, string calldata peerId) external {
        if (roundNumber > _round) revert InvalidRoundNumber();
        if (stageNumber > _stage) revert InvalidStageNumber();
        uint32 peer = _find(peerId);
        Reward storage entry = _rewards[roundNumber][stageNumber][peer];
        if (entry.submitted) revert RewardAlreadySubmitted();
        _owned(peer);
        if (reward != int128(reward)) revert InvalidReward();
        (entry.submitted, entry.value) = (true, int128(reward));
        int256 total = _peers[peer].totalReward + reward;
        _peers[peer].totalReward = total;
        emit CumulativeRewardsUpdated(msg.sender, peerId, total);
        emit RewardSubmitted(msg.sender, roundNumber, stageNumber, reward, peerId);
    }

    /// The sum over the peers of each account.
    function getRoundStageReward(uint256 roundNumber, uint256 stageNumber, address[] calldata accounts)
        external
        view
        returns (int256[] memory rewards)
    {
        rewards = new int256[](accounts.length);
        for (uint256 i; i < accounts.length; ++i) {
            uint32[] storage peers = _peersOf[accounts[i]];
            for (uint256 j; j < peers.length; ++j) {
                rewards[i] += _rewards[roundNumber][stageNumber][peers[j]].value;
            }
        }
    }

    /// Whether any peer of the account has. For one peer ask `getPeerRoundStageReward`.
    function hasSubmittedRoundStageReward(uint256 roundNumber, uint256 stageNumber, address account)
        external
        view
        returns (bool)
    {
        uint32[] storage peers = _peersOf[account];
        for (uint256 i; i < peers.length; ++i) {
            if (_rewards[roundNumber][stageNumber][peers[i]].submitted) return true;
        }
        return false;
    }

    /// By peer: whether it has submitted, and what.
    function getPeerRoundStageReward(uint256 roundNumber, uint256 stageNumber, string[] calldata peerIds)
        external
        view
        returns (bool[] memory submitted, int256[] memory rewards)
    {
        submitted = new bool[](peerIds.length);
        rewards = new int256[](peerIds.length);
        for (uint256 i; i < peerIds.length; ++i) {
            Reward storage entry = _rewards[roundNumber][stageNumber][_find(peerIds[i])];
            (submitted[i], rewards[i]) = (entry.submitted, entry.value);
        }
    }

    function getTotalRewards(string[] calldata peerIds) external view returns (int256[] memory totals) {
        totals = new int256[](peerIds.length);
        for (uint256 i; i < peerIds.length; ++i) {
            totals[i] = _peers[_find(peerIds[i])].totalReward;
        }
    }

    // ---- votes

    /// One ballot per round and peer: 1 to MAX_WINNERS different ids, not the voter's own. Past rounds are open for ever.
    function submitWinners(uint256 roundNumber, string[] calldata winners, string calldata peerId) external {
        if (roundNumber > _round) revert InvalidRoundNumber();
        uint32 voter = _find(peerId);
        uint32[] storage ballot = _ballots[roundNumber][voter];
        if (ballot.length != 0) revert WinnerAlreadyVoted();
        _owned(voter);
        if (winners.length == 0 || winners.length > MAX_WINNERS) revert InvalidVote();
        uint32[] memory chosen = new uint32[](winners.length);
        for (uint256 i; i < chosen.length; ++i) {
            if (!_isPeerId(winners[i])) revert InvalidVote();
            uint32 winner = _intern(winners[i]);
            if (winner == voter) revert InvalidVote();
            for (uint256 j; j < i; ++j) {
                if (chosen[j] == winner) revert InvalidVote();
            }
            chosen[i] = winner;
            _votes[roundNumber][winner] += 1;
            _raise(_winners, winner);
        }
        _ballots[roundNumber][voter] = chosen;
        _raise(_voters, voter);
        emit WinnerSubmitted(msg.sender, peerId, roundNumber, winners);
    }

    function _raise(Board storage board, uint32 peer) private {
        Standing storage own = board.standing[peer];
        (uint32 count, uint32 from) = (own.count, own.position);
        if (count == 0) {
            from = uint32(board.order.length);
            board.order.push(peer);
            board.first[0] = from;
        }
        uint32 to = board.first[count];
        if (to != from) {
            uint32 other = board.order[to];
            (board.order[to], board.order[from]) = (peer, other);
            board.standing[other].position = from;
        }
        board.first[count] = to + 1;
        ++count;
        if (count == board.first.length) {
            board.first.push(to);
        } else if (to == 0 || board.standing[board.order[to - 1]].count != count) {
            board.first[count] = to;
        }
        (own.count, own.position) = (count, to);
    }

    function getVoterVotes(uint256 roundNumber, string calldata peerId) external view returns (string[] memory) {
        return _names(_ballots[roundNumber][_find(peerId)]);
    }

    /// In how many rounds the peer has voted.
    function getVoterVoteCount(string calldata peerId) external view returns (uint256) {
        return _voters.standing[_find(peerId)].count;
    }

    /// Votes received in the round.
    function getPeerVoteCount(uint256 roundNumber, string calldata peerId) external view returns (uint256) {
        return _votes[roundNumber][_find(peerId)];
    }

    /// Votes ever received.
    function getTotalWins(string calldata peerId) external view returns (uint256) {
        return _winners.standing[_find(peerId)].count;
    }

    function uniqueVoters() external view returns (uint256) {
        return _voters.order.length;
    }

    function uniqueVotedPeers() external view returns (uint256) {
        return _winners.order.length;
    }

    /// Places start to end - 1, most votes first; at most MAX_LEADERBOARD_PAGE of them.
    function winnerLeaderboard(uint256 start, uint256 end)
        external
        view
        returns (string[] memory peerIds, uint256[] memory counts)
    {
        return _page(_winners, start, end);
    }

    /// As `winnerLeaderboard`, by the number of rounds a peer has voted in.
    function voterLeaderboard(uint256 start, uint256 end)
        external
        view
        returns (string[] memory peerIds, uint256[] memory counts)
    {
        return _page(_voters, start, end);
    }

    function _page(Board storage board, uint256 start, uint256 end)
        private
        view
        returns (string[] memory peerIds, uint256[] memory counts)
    {
        require(start <= end, "Start index must be less than or equal to end index");
        uint256 length = board.order.length;
        if (start > length) start = length;
        if (end > length) end = length;
        if (end - start > MAX_LEADERBOARD_PAGE) end = start + MAX_LEADERBOARD_PAGE;
        peerIds = new string[](end - start);
        counts = new uint256[](end - start);
        for (uint256 i; i < peerIds.length; ++i) {
            uint32 peer = board.order[start + i];
            (peerIds[i], counts[i]) = (_peers[peer].id, board.standing[peer].count);
        }
    }

    // ---- bootnodes

    function addBootnodes(string[] calldata newBootnodes) external onlyBootnodeManager {
        if (newBootnodes.length > MAX_BOOTNODES - _bootnodes.length) revert TooManyBootnodes();
        for (uint256 i; i < newBootnodes.length; ++i) {
            uint256 length = bytes(newBootnodes[i]).length;
            if (length == 0 || length > MAX_BOOTNODE_LENGTH) revert InvalidBootnode();
            _bootnodes.push(newBootnodes[i]);
        }
        emit BootnodesAdded(msg.sender, newBootnodes.length);
    }

    /// The last one takes the place of the removed one.
    function removeBootnode(uint256 index) external onlyBootnodeManager {
        uint256 length = _bootnodes.length;
        if (index >= length) revert InvalidBootnodeIndex();
        if (index != length - 1) _bootnodes[index] = _bootnodes[length - 1];
        _bootnodes.pop();
        emit BootnodeRemoved(msg.sender, index);
    }

    function clearBootnodes() external onlyBootnodeManager {
        delete _bootnodes;
        emit AllBootnodesCleared(msg.sender);
    }

    function getBootnodes() external view returns (string[] memory) {
        return _bootnodes;
    }

    function getBootnodesCount() external view returns (uint256) {
        return _bootnodes.length;
    }

    // ---- upgrading (ERC-1822 and ERC-1967)

    /// Where a proxy keeps the address of its code. Refuses through a proxy, or one could be upgraded to another.
    function proxiableUUID() external view returns (bytes32) {
        if (address(this) != _self) revert UUPSUnauthorizedCallContext();
        return IMPLEMENTATION_SLOT;
    }

    /// Gives the proxy that calls new code, then calls `data` on it unless that is empty.
    function upgradeToAndCall(address newImplementation, bytes calldata data) external payable {
        if (address(this) == _self || _implementation() != _self) revert UUPSUnauthorizedCallContext();
        if (!_roles[OWNER_ROLE][msg.sender]) revert OnlyOwner();
        (bool answered, bytes memory slot) = newImplementation.staticcall(abi.encodeCall(this.proxiableUUID, ()));
        if (!answered || slot.length != 32) revert ERC1967InvalidImplementation(newImplementation);
        if (bytes32(slot) != IMPLEMENTATION_SLOT) revert UUPSUnsupportedProxiableUUID(bytes32(slot));
        bytes32 at = IMPLEMENTATION_SLOT;
        assembly ("memory-safe") {
            sstore(at, newImplementation)
        }
        emit Upgraded(newImplementation);
        if (data.length != 0) {
            _delegate(newImplementation, data);
        } else if (msg.value != 0) {
            revert ERC1967NonPayable();
        }
    }

    function _implementation() private view returns (address implementation) {
        bytes32 at = IMPLEMENTATION_SLOT;
        assembly ("memory-safe") {
            implementation := sload(at)
        }
    }

    function _delegate(address target, bytes calldata data) private {
        (bool done, bytes memory answer) = target.delegatecall(data);
        if (done) return;
        if (answer.length == 0) revert FailedCall();
        assembly ("memory-safe") {
            revert(add(answer, 32), mload(answer))
        }
    }
}
