-- No frame was accepted before its stream was live, or after its end.
with suspects as (
    select * from frame_spans b
    where
        not exists (
            select 1 from streams s
            where
                s.space = b.space and s.stream_id = b.stream_id and b.first_position > s.started_position
                and b.last_position < coalesce(s.ended_position, 9223372036854775807)
        )
)
select
    f.space,
    f.position,
    f.time,
    'frame ' || f.frame_number || ' of ' || f.stream_id as what,
    'the stream was not live at this position' as message
from suspects b
join frames f
    on f.space = b.space and f.stream_id = b.stream_id and f.writer = b.writer and f.position // 4096 = b.block
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
