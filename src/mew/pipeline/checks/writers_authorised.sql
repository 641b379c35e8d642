-- The writer of each frame owned the stream or had a grant of an owner, and that owner can be traced to the opening.
with suspects as (
    select * from frame_spans s
    where
        not exists (
            select 1 from write_access a
            where
                a.space = s.space and a.stream_id = s.stream_id and a.participant = s.writer
                and s.first_position > a.from_position and s.last_position < a.to_position
        )
)
select
    f.space,
    f.position,
    f.time,
    'frame ' || f.frame_number || ' of ' || f.stream_id as what,
    f.writer || ' neither owned the stream nor had write access from an owner' as message
from suspects s
join frames f
    on f.space = s.space and f.stream_id = s.stream_id and f.writer = s.writer and f.position // 4096 = s.block
where
    not exists (
        select 1 from write_access a
        where
            a.space = f.space and a.stream_id = f.stream_id and a.participant = f.writer
            and f.position > a.from_position and f.position < a.to_position
    )
    and not exists (
        select 1 from unproven u where u.space = f.space and f.position > u.from_position and f.position < u.to_position
    )
