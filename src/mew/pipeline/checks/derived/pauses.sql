-- From which position to which, and until when, a participant was paused, or was about to be shut down.
with asked as (
    select
        space,
        position,
        time,
        unnest("to") as participant,
        kind,
        (payload ->> '$.timeout_seconds')::double as seconds
    from envelopes
    where accepted and kind in ('participant/pause', 'participant/shutdown') and participant <> 'system:gateway'
),
begun as (
    select
        a.space,
        a.participant,
        a.kind,
        a.position,
        case
            when a.kind = 'participant/shutdown' then a.time + interval 5 second
            else coalesce(a.time + a.seconds * interval 1 second, 'infinity'::timestamptz)
        end as ends
    from asked a
    -- An unknown participant cannot be paused, and an absent one cannot be shut down.
    where
        exists (
            select 1 from capabilities h
            where
                a.kind = 'participant/pause' and h.space = a.space and h.participant = a.participant
                and h.from_position < a.position and coalesce(h.to_position, 9223372036854775807) >= a.position
        )
        or exists (
            select 1 from presences p
            where
                a.kind = 'participant/shutdown' and p.space = a.space and p.participant = a.participant
                and p.from_position < a.position and p.to_position > a.position
        )
),
ended as (
    select space, 'participant/pause' as kind, unnest("to") as participant, position, participant as sender
    from envelopes
    where accepted and kind = 'participant/resume'
    union all
    select space, kind, participant, position, null from begun
    union all
    select space, 'participant/pause', payload ->> '$.participant_id', position, null
    from envelopes
    where accepted and kind = 'space/invite'
    union all
    select
        space,
        unnest(case when anonymous then ['participant/pause', 'participant/shutdown'] else ['participant/shutdown'] end),
        participant,
        to_position,
        null
    from presences
    where left_time is not null
)
select
    b.space,
    b.participant,
    b.position as from_position,
    coalesce(e.position, 9223372036854775807) as to_position,
    b.ends
from begun b
asof left join (select * from ended where sender is distinct from participant) e
    on e.space = b.space and e.participant = b.participant and e.kind = b.kind and b.position < e.position
