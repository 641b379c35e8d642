-- The writer of each frame was present at that position.
select
    f.space,
    f.position,
    f.time,
    'frame ' || f.frame_number || ' of ' || f.stream_id as what,
    f.writer || ' was not present when its frame was accepted' as message
from frames f
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
