-- Each write access and each granted capability was requested by an accepted envelope of the one who gave it.
select
    g.space,
    g.from_position as position,
    g.from_time as time,
    'write access of ' || g.participant || ' to ' || g.stream_id as what,
    g.participant || ' got write access, but ' || g.problem as message
from write_grants g
where
    g.problem is not null
    and not exists (
        select 1 from unproven u
        where u.space = g.space and g.from_position > u.from_position and g.from_position < u.to_position
    )
union all
select
    h.space,
    h.from_position,
    h.from_time,
    'capability of ' || h.participant as what,
    h.participant || ' got ' || h.capability || ', but no accepted capability/grant gave it'
from capabilities h
where
    h.source like 'grant:%'
    and not exists (
        select 1 from envelopes e
        where
            e.space = h.space and e.accepted and e.kind = 'capability/grant'
            and e.participant = h.granted_by and 'grant:' || e.envelope_id = h.source
            and e.payload ->> '$.recipient' = h.participant and e.position <= h.from_position
    )
    and not exists (
        select 1 from system_records k
        where k.space = h.space and k.position = h.from_position and k.event in ('checkpoint', 'start')
    )
    and not exists (
        select 1 from unproven u
        where u.space = h.space and h.from_position > u.from_position and h.from_position <= u.to_position
    )
