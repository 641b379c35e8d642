-- Data that was accepted on a stream that validates fits the format of the stream; the decoder compares it.
select
    f.space,
    f.position,
    f.time,
    'frame ' || f.frame_number || ' of ' || f.stream_id as what,
    'the stream validates its data, and this data does not fit its format' as message
from frames f
join streams s
    on
        s.space = f.space and s.stream_id = f.stream_id and f.position > s.position
        and f.position < coalesce(s.ended_position, 9223372036854775807)
asof left join configurations c on c.space = f.space and f.position > c.from_position
where
    f.kind = 'data' and not f.valid
    and coalesce((s.request ->> '$.validate')::boolean, c.validates, false)
