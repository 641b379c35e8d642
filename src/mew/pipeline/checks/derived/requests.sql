-- Accepted envelopes of participants that ask for a change of a stream, and what each asks for.
select
    space,
    position,
    time,
    participant as sender,
    kind,
    envelope_id,
    case
        when kind in ('stream/request', 'stream/announce') then null
        else coalesce(payload ->> '$.stream_id', payload ->> '$.stream.stream_id')
    end as stream_id,
    coalesce(payload ->> '$.participant_id', payload ->> '$.new_owner') as subject
from envelopes
where
    accepted
    and participant <> 'system:gateway'
    and kind in (
        'stream/request', 'stream/announce', 'stream/grant-write', 'stream/revoke-write', 'stream/transfer-ownership'
    )
