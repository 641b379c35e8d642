-- No frame was accepted before its stream was live, or after its end.
select
    f.space,
    f.position,
    f.time,
    'frame ' || f.frame_number || ' of ' || f.stream_id as what,
    'the stream was not live at this position' as message
from frames f
where
    not exists (
        select 1 from streams s
        where
            s.space = f.space and s.stream_id = f.stream_id and f.position > s.started_position
            and f.position < coalesce(s.ended_position, 9223372036854775807)
    )
    and not exists (
        select 1 from unproven u where u.space = f.space and f.position > u.from_position and f.position < u.to_position
    )
