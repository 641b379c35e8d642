-- The size of each record is the number of bytes that the journal has of it.
select
    space,
    position,
    time,
    kind || ' of ' || participant as what,
    'its size is ' || size || ', and the journal has ' || bytes || ' bytes of it' as message
from envelopes
-- The answer to an invitation is recorded without the token.
where accepted and size <> bytes and not (participant = 'system:gateway' and kind = 'space/invite-ack')
union all
select
    space,
    position,
    time,
    event || ' of ' || participant,
    'its size is ' || size || ', and the journal has ' || bytes || ' bytes of it'
from system_records
where size <> bytes and event not in ('join', 'leave', 'frame_rejected')
union all
select
    space,
    position,
    time,
    'frame ' || frame_number || ' of ' || stream_id,
    'its size is ' || size || ', and the journal has ' || bytes || ' bytes of it'
from frames
where size <> bytes
