// SPDX-License-Identifier: MIT
pragma solidity 0.8.29;

interface ICoordinator {
    function currentRound() external view returns (uint256);
    function getEoa(string[] calldata peerIds) external view returns (address[] memory);
}

/// @title When a peer reported, and what jurors answered. It holds no stakes and pays nothing.
/// @notice A peer anchors one root a round: the hash of all that it reports in that round. Nobody can claim afterwards to
/// have known early. Anchors and ballots are events only; storage is one slot a peer, however long the swarm lives.
/// Settlement is a function of anchored reports and ballots that every node computes (docs/contract.md).
contract SwarmMarket {
    uint256 public constant MAX_PEER_ID_LENGTH = 128; // bytes, as in the coordinator
    uint256 public constant MAX_GAMES = 32; // of one ballot

    /// Knows which round is open and which account owns a peer id.
    ICoordinator public immutable coordinator;

    /// The newest round in which the peer anchored, plus 1; 0: none. Rounds only grow, so one number tells all.
    mapping(bytes32 peer => uint256) private _anchored;

    /// `peer` is the keccak256 of the peer id.
    event Anchored(bytes32 indexed peer, uint256 indexed round, bytes32 root);
    event Judged(bytes32 indexed peer, bytes32[] games, uint8[] answers, bytes32 shown);

    error NotTheOpenRound();
    error NotYourPeer();
    error AlreadyAnchored();
    error InvalidBallot();

    constructor(ICoordinator coordinator_) {
        coordinator = coordinator_;
    }

    /// The root of everything that the peer reports in the open round, and of no other round.
    function anchor(uint256 round, bytes32 root, string calldata peerId) external {
        if (round != coordinator.currentRound()) revert NotTheOpenRound();
        bytes32 peer = _owned(peerId);
        if (_anchored[peer] > round) revert AlreadyAnchored();
        _anchored[peer] = round + 1;
        emit Anchored(peer, round, root);
    }

    /// A juror's answers: for each game the number of an answer, 255: void. Of several answers of one peer to one game
    /// the first counts. `shown`: a bit for each anchored root that the juror saw opened in time.
    function judge(bytes32[] calldata games, uint8[] calldata answers, bytes32 shown, string calldata peerId) external {
        if (games.length == 0 || games.length > MAX_GAMES || games.length != answers.length) revert InvalidBallot();
        emit Judged(_owned(peerId), games, answers, shown);
    }

    /// The newest round in which the peer anchored, plus 1; 0: none.
    function anchored(string calldata peerId) external view returns (uint256) {
        return _anchored[keccak256(bytes(peerId))];
    }

    /// The peer's key in storage and events. Only the account that registered the peer id may use it.
    function _owned(string calldata peerId) private view returns (bytes32) {
        if (bytes(peerId).length == 0 || bytes(peerId).length > MAX_PEER_ID_LENGTH) revert NotYourPeer();
        string[] memory peerIds = new string[](1);
        peerIds[0] = peerId;
        if (coordinator.getEoa(peerIds)[0] != msg.sender) revert NotYourPeer();
        return keccak256(bytes(peerId));
    }
}
