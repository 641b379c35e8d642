-- The sender of each accepted envelope was present at that position.
select
    e.space,
    e.position,
    e.time,
    e.kind || ' of ' || e.participant as what,
    e.participant || ' was not present when its envelope was accepted' as message
from envelopes e
asof left join presences p
    on p.space = e.space and p.participant = e.participant and e.position > p.from_position
where
    e.accepted
    and e.participant <> 'system:gateway'
    and (p.participant is null or e.position > p.to_position)
    -- An observer is never present, and may send heartbeats.
    and not (
        e.kind = 'system/heartbeat'
        and exists (
            select 1 from system_records o
            where
                o.space = e.space and o.participant = e.participant and o.event = 'welcome' and o.reason = 'observer'
                and o.position < e.position
        )
    )
    and not exists (
        select 1 from unproven u where u.space = e.space and e.position > u.from_position and e.position < u.to_position
    )
