-- A participant that was paused sent only what a paused participant may send.
select
    e.space,
    e.position,
    e.time,
    e.kind || ' of ' || e.participant as what,
    e.participant || ' had been paused at position ' || p.from_position as message
from envelopes e
join pauses p
    on
        p.space = e.space and p.participant = e.participant and e.position > p.from_position
        and e.position < p.to_position and e.time < p.ends
where
    e.accepted
    and e.kind not in (
        'stream/close', 'stream/complete', 'stream/error', 'participant/status', 'participant/resume',
        'participant/request-status', 'participant/clear', 'participant/forget', 'participant/compact-done',
        'participant/shutdown', 'chat/acknowledge', 'chat/cancel', 'reasoning/cancel', 'system/heartbeat',
        'mcp/withdraw'
    )
union all
select
    f.space,
    f.position,
    f.time,
    'frame ' || f.frame_number || ' of ' || f.stream_id,
    f.writer || ' had been paused at position ' || p.from_position
from frame_spans s
join pauses p
    on
        p.space = s.space and p.participant = s.writer and s.last_position > p.from_position
        and s.first_position < p.to_position
join frames f
    on
        f.space = s.space and f.stream_id = s.stream_id and f.writer = s.writer and f.position // 4096 = s.block
        and f.position > p.from_position and f.position < p.to_position and f.time < p.ends
