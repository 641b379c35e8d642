-- The writer of each frame was present at that position.
with suspects as (
    select * from frame_spans s
    where
        not exists (
            select 1 from presences p
            where
                p.space = s.space and p.participant = s.writer
                and s.first_position > p.from_position and s.last_position < p.to_position
        )
)
select
    f.space,
    f.position,
    f.time,
    'frame ' || f.frame_number || ' of ' || f.stream_id as what,
    f.writer || ' was not present when its frame was accepted' as message
from suspects s
join frames f
    on f.space = s.space and f.stream_id = s.stream_id and f.writer = s.writer and f.position // 4096 = s.block
where
    not exists (
        select 1 from presences p
        where
            p.space = f.space and p.participant = f.writer
            and f.position > p.from_position and f.position < p.to_position
    )
    and not exists (
        select 1 from unproven u where u.space = f.space and f.position > u.from_position and f.position < u.to_position
    )
