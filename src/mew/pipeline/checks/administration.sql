-- Only those who may invite, kick, pause, and change capabilities did so, and nothing of that kind happened by itself.
with kicks as (
    select space, position, payload ->> '$.participant_id' as participant
    from envelopes
    where accepted and kind = 'space/kick'
),
invitations as (
    select space, position, payload ->> '$.participant_id' as participant
    from envelopes
    where accepted and kind = 'space/invite'
),
shutdowns as (
    select space, position, unnest("to") as participant
    from envelopes
    where accepted and kind = 'participant/shutdown'
),
violations as (
    select
        space,
        position,
        time,
        kind || ' of ' || participant as what,
        participant || ' was not allowed to send it: ' || problem as message
    from capability_uses
    where
        problem is not null
        and kind in (
            'space/invite', 'space/kick', 'participant/pause', 'participant/resume', 'participant/shutdown',
            'capability/grant', 'capability/revoke'
        )
    union all
    select
        p.space,
        p.left_position,
        p.left_time,
        'leave of ' || p.participant,
        p.participant || ' was removed as ' || p.reason || ', and no accepted envelope asked for it'
    from participants p
    asof left join (
        select space, position, participant, 'kicked' as reason from kicks
        union all
        select space, position, participant, 'shutdown' as reason from shutdowns
    ) k
        on
            k.space = p.space and k.participant = p.participant and k.reason = p.reason
            and p.left_position > k.position
    where p.reason in ('kicked', 'shutdown') and coalesce(k.position, -1) < p.joined_position
    union all
    select
        p.space,
        p.joined_position,
        p.joined_time,
        'join of ' || p.participant,
        p.participant || ' joined, although it had been kicked and not invited again'
    from participants p
    asof join kicks k on k.space = p.space and k.participant = p.participant and p.joined_position > k.position
    asof left join invitations i
        on i.space = p.space and i.participant = p.participant and p.joined_position > i.position
    where coalesce(i.position, -1) < k.position
    union all
    select
        a.space,
        a.position,
        a.time,
        'invitation of ' || coalesce(a.payload ->> '$.participant_id', ''),
        'the gateway issued a token, and no accepted space/invite asked for it'
    from envelopes a
    asof left join invitations i
        on
            i.space = a.space and i.participant = (a.payload ->> '$.participant_id') and a.position > i.position
    where
        a.kind = 'space/invite-ack' and a.participant = 'system:gateway' and a.accepted and i.position is null
)
select *
from violations v
where
    not exists (
        select 1 from unproven u where u.space = v.space and v.position > u.from_position and v.position < u.to_position
    )
