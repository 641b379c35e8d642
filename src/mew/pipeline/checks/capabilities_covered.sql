-- The sender of each capability/grant had what it granted, or a capability that covers it, at that position.
select
    space,
    position,
    time,
    'capability/grant of ' || participant as what,
    participant || ' granted to ' || coalesce(payload ->> '$.recipient', '')
    || ' what its own capabilities do not cover' as message
from envelopes e
where
    accepted and kind = 'capability/grant' and participant <> 'system:gateway' and not grant_covered
    and not exists (
        select 1 from unproven u where u.space = e.space and e.position > u.from_position and e.position < u.to_position
    )
