-- Each accepted envelope was allowed by a capability that its sender had at that position and that matches it.
select
    space,
    position,
    time,
    kind || ' of ' || participant as what,
    participant || ' was not allowed to send it: ' || problem as message
from capability_uses c
where
    problem is not null
    and kind not in (
        'space/invite', 'space/kick', 'participant/pause', 'participant/resume', 'participant/shutdown',
        'capability/grant', 'capability/revoke'
    )
    and not exists (
        select 1 from unproven u where u.space = c.space and c.position > u.from_position and c.position < u.to_position
    )
