-- The configuration of a space from one start of the gateway to the next.
select
    space,
    position as from_position,
    coalesce(lead(position) over (partition by space order by position), 9223372036854775807) as to_position,
    coalesce((configuration ->> '$.streams.validate')::boolean, false) as validates,
    coalesce(configuration ->> '$.streams.on_owner_disconnect', 'transfer') as policy,
    coalesce((configuration ->> '$.streams.owner_grace_seconds')::double, 60) as grace_seconds
from system_records
where event = 'start' and configuration is not null
