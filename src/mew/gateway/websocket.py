"""One WebSocket connection of a participant, from its upgrade to its close.

It converts messages to commands and deliveries to frames. picows handles masking, opcodes, lengths and control
frames. This module handles fragments, reserved bits, UTF-8, pongs and the close handshake (RFC 6455).
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec
from picows import WSFrame, WSListener, WSMsgType, WSTransport

from mew.config.tokens import token_fingerprint
from mew.gateway.fanout.encoding import PING, envelope_item, pong
from mew.gateway.fanout.sinks import SocketSink
from mew.gateway.scheduling import HeldFrame
from mew.protocol import GATEWAY, Close, Deliver, JoinRequest, ProtocolError, reject_connection
from mew.protocol.envelope import Stamp
from mew.protocol.errors import MessageTooLarge
from mew.protocol.frames import is_frame

if TYPE_CHECKING:
    from mew.gateway.connections import OpenConnection
    from mew.gateway.gateway import Gateway
    from mew.gateway.hub import Hub


REASON_BYTES: Final = 123
CODE_BYTES: Final = 2
NORMAL: Final = 1000
GOING_AWAY: Final = 1001
PROTOCOL_ERROR: Final = 1002
INVALID_TEXT: Final = 1007
_POLICY: Final = 1008
CLOSE_CODES: Final = frozenset((1000, 1001, 1002, 1003, *range(1007, 1015), *range(3000, 5000)))
"""Valid codes of a close frame: those of RFC 6455 §7.4 and IANA's registry, and the range for applications."""
RUN_FRAME_BYTES: Final = 16 * 1024
"""Maximum size of a frame in a run. Larger frames are authorized one by one: the extra cost is negligible."""
_TEXT: Final = WSMsgType.TEXT
_BINARY: Final = WSMsgType.BINARY
_MESSAGES: Final = (WSMsgType.TEXT, WSMsgType.BINARY)
"""A tuple, because a set would hash the enum member in Python code at each test."""


class WebSocketConnection(WSListener):
    """One WebSocket. Rarely used state is created on demand, because thousands of sockets may be idle."""

    __slots__ = (
        "_add_frame",
        "_closing",
        "_credentials",
        "_deadline",
        "_fragments",
        "_fragments_text",
        "_frame_header",
        "_frame_type",
        "_gateway",
        "_held",
        "_hub",
        "_opened",
        "_owed_pong",
        "_participant",
        "_refused",
        "_run_bytes",
        "_silent_for",
        "_transport",
        "connection",
        "heard",
        "sink",
        "token",
    )

    def __init__(self, gateway: "Gateway", credentials: JoinRequest, opened: "OpenConnection") -> None:
        """Create the socket of an upgraded, not yet joined connection; `credentials` are those of the request."""
        super().__init__()
        self._gateway = gateway
        self._opened = opened
        self._refused = False
        """Whether the join is rejected; the answer may be delayed."""
        self._credentials: JoinRequest | None = credentials
        self.connection = gateway.new_connection()
        self._hub: Hub | None = None
        self._participant = ""
        self.token: bytes | None = None
        """Fingerprint of the token used to join, which may be revoked later."""
        self._add_frame: Callable[[bytes], None] | None = None
        """Adds frames to the run of this socket; None if there is no run."""
        self._frame_header = b""
        self._frame_type = _TEXT
        self._run_bytes = 0
        self._fragments: bytearray | None = None
        """The fragments received so far of an incomplete message."""
        self._fragments_text = True
        self._held: deque[HeldFrame] | None = None
        """Frames held, in order, until the join is processed or the sender has a share of a later turn."""
        self.heard = True
        """Whether anything was received since the last silence check."""
        self._silent_for = 0
        self._owed_pong: bytes | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._closing = False
        self.sink = SocketSink(
            self,
            data_bytes=gateway.config.queues.data_bytes,
            control_bytes=gateway.config.queues.control_bytes,
            on_loss=gateway.count_loss,
        )

    # Callbacks from picows

    def on_ws_connected(self, transport: WSTransport) -> None:
        """Join immediately if the request head has a token; otherwise wait for a join until the handshake timeout."""
        self._transport = transport
        transport.underlying_transport.set_write_buffer_limits(high=1, low=0)
        self._gateway.sockets.add(self)
        if self._credentials is not None and self._credentials.token is not None:
            self._join(self._credentials)
        else:
            self._set_deadline(self._gateway.config.timeouts.handshake_seconds, self._never_joined)

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        """Clean up after a disconnect by either side; the space processes mass disconnects a few at a time."""
        self._clear_deadline()
        self._add_frame = None
        self.sink.abandon()
        self.sink.disconnect()
        if self._held is None:
            self._gateway.leave_throttle.put(self._leave)

    def _leave(self) -> None:
        self._gateway.sockets.discard(self)
        if self._hub is not None:
            self._hub.leave(self.connection)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        """Handle a received frame; a raw frame that continues a run or may start one takes a fast path."""
        if frame.payload_size <= self._run_bytes and frame.fin and not (frame.rsv1 or frame.rsv2 or frame.rsv3):
            message, kind = frame.get_payload_as_bytes(), frame.msg_type
            if kind is _BINARY or (kind is _TEXT and message.isascii()):
                if self._add_frame is not None and kind is self._frame_type and message.startswith(self._frame_header):
                    self._add_frame(message)
                    return
                hub = self._hub
                if (
                    hub is not None
                    and message[:1] == b"#"
                    and self._held is None
                    and self._fragments is None
                    and not self._closing
                ):
                    hub.receive(self.connection, self._participant, message, text=kind is _TEXT, writer=self)
                    return
        if self._held is not None:
            self._held.append(HeldFrame.of(frame))
        else:
            self._handle(frame)

    def _handle(self, frame: WSFrame | HeldFrame) -> None:
        """Handle a frame according to its type."""
        kind = frame.msg_type
        if frame.rsv1 or frame.rsv2 or frame.rsv3:
            self.close(PROTOCOL_ERROR, "reserved bits are set")
        elif self._closing:
            if kind == WSMsgType.CLOSE:
                self._disconnect()
        elif kind in _MESSAGES:
            self._begin(frame, text=kind == _TEXT)
        elif kind == WSMsgType.CONTINUATION:
            self._continue(frame)
        elif kind == WSMsgType.PING:
            self._owed_pong = frame.get_payload_as_bytes()
            self._pay_pong()
        elif kind == WSMsgType.CLOSE:
            self._answer_close(frame.get_payload_as_bytes())

    def pause_writing(self) -> None:
        """Pause the sink: the kernel accepts no more bytes."""
        self.sink.pause()

    def resume_writing(self) -> None:
        """Resume the sink: the kernel accepts bytes again."""
        if self._hub is None or self.sink.closed:
            self.sink.resume([])
        else:
            self._hub.writable(self.connection)
        self._pay_pong()

    def _pay_pong(self) -> None:
        """Answer only the latest ping, once the peer reads, so that pongs do not pile up (RFC 6455 §5.5.3)."""
        if self._owed_pong is not None and not self.sink.paused:
            self.write(pong(self._owed_pong))
            self._owed_pong = None

    # Messages

    def _begin(self, frame: WSFrame | HeldFrame, *, text: bool) -> None:
        if self._fragments is not None:
            self.close(PROTOCOL_ERROR, "a new message began inside another")
        elif frame.fin:
            self._message(frame.get_payload_as_bytes(), text=text)
        else:
            self._add_frame = None
            self._fragments = bytearray(frame.get_payload_as_memoryview())
            self._fragments_text = text
            self._end_fragments(fin=False)

    def _continue(self, frame: WSFrame | HeldFrame) -> None:
        if self._fragments is None:
            self.close(PROTOCOL_ERROR, "a continuation of nothing")
            return
        self._fragments += frame.get_payload_as_memoryview()
        self._end_fragments(fin=bool(frame.fin))

    def _end_fragments(self, *, fin: bool) -> None:
        """Handle the assembled message if it is complete or already too large."""
        if self._fragments is not None and (fin or len(self._fragments) > self._most_bytes):
            message = bytes(self._fragments)
            self._fragments = None
            self._message(message, text=self._fragments_text)

    @property
    def _most_bytes(self) -> int:
        """Maximum size of a message in bytes; before the join, `join_bytes` applies."""
        gateway = self._gateway
        return gateway.message_bytes if self._hub is not None else gateway.config.unadmitted.join_bytes

    def _message(self, message: bytes, *, text: bool) -> None:
        if self._hub is None and (self._refused or len(message) > self._most_bytes):
            self.refuse_join_bytes()
            return
        hub, is_raw = self._hub, is_frame(message)
        # Raw frames cost little, so they do not wait for a turn and their time is not measured.
        if hub is not None and not is_raw and self._must_wait(hub, message, text=text):
            return
        # A message that is too large may be truncated inside a character. The core reports its error.
        if text and not message.isascii() and len(message) <= self._gateway.message_bytes:
            try:
                message.decode()
            except UnicodeDecodeError:
                self.close(INVALID_TEXT, "a text message is not UTF-8")
                return
        if hub is None:
            self._line_up(message)
        elif is_raw:
            hub.receive(self.connection, self._participant, message, text=text, writer=self)
        else:
            with hub.turns.spending(self._payer(hub)):
                hub.receive(self.connection, self._participant, message, text=text)

    def _payer(self, hub: "Hub") -> str:
        session = hub.space.sessions.get(self.connection)
        return self._participant if session is None else session.payer

    # Waiting for a turn

    def _must_wait(self, hub: "Hub", message: bytes, *, text: bool) -> bool:
        """Hold the message and later frames if the sender's share of this turn is used up; return whether held."""
        if not hub.turns.is_over(self._payer(hub)):
            return False
        self._add_frame = None
        self._held = deque((HeldFrame(_TEXT if text else _BINARY, message),))
        self.pause_reading()
        hub.turns.wait(self._payer(hub), self._go_on)
        return True

    def _go_on(self) -> bool:
        """Handle one held frame and return whether more frames are held."""
        frames, self._held = self._held, None
        if frames:
            self._handle(frames.popleft())
        if frames:
            self._held = frames
            return True
        if self._transport.is_disconnected:
            self._gateway.leave_throttle.put(self._leave)
        else:
            self.resume_reading()
        return False

    # Joining

    @property
    def is_lined_up(self) -> bool:
        """Whether a join message is queued; later frames are held until it is processed."""
        return self._held is not None and self._hub is None

    def _line_up(self, message: bytes) -> None:
        """Queue a join: concurrent joins are processed a few at a time. Later frames wait, unread if possible."""
        self._held = deque()
        self.pause_reading()
        self._gateway.join_throttle.put(lambda: self._enter(message))

    def _enter(self, message: bytes) -> None:
        """Process the queued join, then the frames that came after it."""
        frames = self._take_held()
        if self._transport.is_disconnected:
            self._gateway.leave_throttle.put(self._leave)
            return
        if not self._closing:
            self._take_join(message)
        while frames and self._held is None:
            self._handle(frames.popleft())
        if self._held is None:
            self.resume_reading()
        else:  # the sender has used its share of this turn
            self._held.extend(frames)

    def _take_held(self) -> "deque[HeldFrame]":
        frames, self._held = self._held or deque(), None
        return frames

    def _take_join(self, message: bytes) -> None:
        try:
            request = self._gateway.lobby.first_message(message)
        except ProtocolError as refusal:
            self._turn_away(refusal)
            return
        self._join(request if self._credentials is None else request.or_else(self._credentials))

    def refuse_join_bytes(self) -> None:
        """Reject a join that exceeds `join_bytes`, unless it is already rejected or the connection is closing."""
        if not (self._refused or self._closing):
            most = self._gateway.config.unadmitted.join_bytes
            message = f"before the join a message may have {most} bytes: see `gateway.limits.join_bytes`"
            self._turn_away(MessageTooLarge(message, limit=most))

    def _join(self, request: JoinRequest) -> None:
        try:
            space, join = self._gateway.lobby.admit(self.connection, request)
            self._gateway.hubs[space.settings.space_id].require_journal()
        except ProtocolError as refusal:
            self._refuse_join(refusal, request)
            return
        self._clear_deadline()
        self._opened.admit()
        self._credentials = None
        self._hub = self._gateway.hubs[space.settings.space_id]
        self._participant = join.participant
        self.token = None if request.token is None else token_fingerprint(request.token)
        self._run_bytes = min(RUN_FRAME_BYTES, space.settings.limits.message_bytes)
        self._hub.attach(self.connection, self.sink)
        self._hub.run(msgspec.structs.replace(join, peer=self._opened.peer, source=self._opened.source))

    def _refuse_join(self, refusal: ProtocolError, request: JoinRequest) -> None:
        """Reject a join. To slow down token guessing, an unknown token delays the answer on this connection only."""
        if not self._gateway.is_guess(refusal, request.token):
            self._turn_away(refusal, request)
            return
        # Record the rejection now: the peer may disconnect before the delayed answer.
        self._record_refusal(refusal, request)
        seconds = self._gateway.config.timeouts.failed_join_seconds
        self._set_deadline(seconds, lambda: self._answer_refusal(refusal, request))

    def _turn_away(self, refusal: ProtocolError, request: JoinRequest | None = None) -> None:
        """Record a rejected join, send the error and close the connection."""
        request = request or JoinRequest()
        self._record_refusal(refusal, request)
        self._answer_refusal(refusal, request)

    def _record_refusal(self, refusal: ProtocolError, request: JoinRequest) -> None:
        self._refused = True
        self._gateway.refusals.write("connection rejected", self._opened, error=refusal.code)
        self._gateway.record_refusal(refusal, request, self._opened, "websocket")

    def _answer_refusal(self, refusal: ProtocolError, request: JoinRequest) -> None:
        hub = self._gateway.first_hub
        stamp = Stamp(GATEWAY, hub.space.new_id(), hub.clock())
        for effect in reject_connection(self.connection, refusal, stamp, request.cause):
            if isinstance(effect, Deliver):
                self.sink.put([envelope_item(effect.message)])
            elif isinstance(effect, Close):
                self.sink.close(effect.code, effect.reason)

    def _never_joined(self) -> None:
        if self.is_lined_up:  # the join came in time and is still queued
            self._set_deadline(self._gateway.config.timeouts.handshake_seconds, self._never_joined)
            return
        self.close(_POLICY, "no join came in time")

    # Runs of frames, and backpressure under load

    def begin_run(self, header: bytes, add: Callable[[bytes], None], *, text: bool) -> None:
        """Pass frames with this header and opcode to `add` from now on; they are already authorized."""
        self._frame_header, self._add_frame = header, add
        self._frame_type = _TEXT if text else _BINARY

    def end_run(self) -> None:
        """Stop adding frames to the run."""
        self._add_frame = None

    def has_read(self) -> None:
        """Called after all frames of one read are handled; under load, pauses reading until the next flush."""
        self.heard = True
        hub = self._hub
        deferral = None if hub is None else hub.fanout.deferral
        if deferral is not None and self._held is None:
            deferral.pause(self)

    def pause_reading(self) -> None:
        """Stop reading: received bytes stay in the kernel's buffer."""
        self._transport.underlying_transport.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading, unless frames are held or the connection is closed."""
        if self._held is None and not self._transport.is_disconnected:
            self._transport.underlying_transport.resume_reading()

    # Silence

    def check_idle(self, ping_after: int, close_after: int) -> None:
        """Called periodically: ping a peer after some silent checks, and close the connection after more of them."""
        if self.heard or self._transport.is_disconnected:
            self.heard, self._silent_for = False, 0
            return
        self._silent_for += 1
        if self._silent_for == ping_after:
            if not self.sink.paused:
                self.write(PING)
        elif self._silent_for >= close_after:
            self.close(GOING_AWAY, "silent for too long")

    # Closing

    def write(self, data: bytes) -> None:
        """Write encoded frames to the transport, unless a close frame was sent."""
        if not self._transport.is_close_frame_sent:
            self._transport.underlying_transport.write(data)

    def close(self, code: int, reason: str) -> None:
        """Start the close handshake; a peer that does not answer is disconnected after `close_seconds`."""
        if self._closing:
            return
        self._closing, self._add_frame = True, None
        self._send_close(code, reason.encode()[:REASON_BYTES].decode(errors="ignore").encode())
        self._give_up_soon()

    def fail(self) -> bool:
        """Handle an error for which picows has sent the close frame; return False if already closing."""
        if self._closing:
            return False
        self._closing, self._add_frame = True, None
        self._give_up_soon()
        return True

    def cut_off(self) -> None:
        """Disconnect immediately, even if data still waits to be sent."""
        self._transport.disconnect(False)

    def _answer_close(self, payload: bytes) -> None:
        """Answer a close frame with its code, if the code is valid (RFC 6455 §5.5.1, §7.4).

        Messages that came earlier in the same packet are answered first.
        """
        if self._hub is not None:
            self._hub.fanout.flush_to(self.connection)
        self._closing, self._add_frame = True, None
        code = int.from_bytes(payload[:CODE_BYTES], "big") if payload else NORMAL
        valid = code in CLOSE_CODES
        self._send_close(code if valid else PROTOCOL_ERROR, b"" if valid else b"no such close code")
        self._disconnect()

    def _disconnect(self) -> None:
        """Disconnect after the close handshake; a timeout applies if the peer does not read the remaining data."""
        self._transport.disconnect()
        self._give_up_soon()

    def _give_up_soon(self) -> None:
        self.sink.abandon()
        self._set_deadline(self._gateway.config.timeouts.close_seconds, self.cut_off)

    def _send_close(self, code: Any, reason: bytes) -> None:
        """Send a close frame; `code` is `Any` because picows accepts any number, unlike its type hints."""
        self._transport.send_close(code, reason)

    def _set_deadline(self, seconds: float, action: Callable[[], None]) -> None:
        self._clear_deadline()
        if not self._transport.is_disconnected:
            self._deadline = asyncio.get_running_loop().call_later(seconds, action)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
