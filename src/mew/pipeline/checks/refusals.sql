-- Each refusal has a reason.
select
    space,
    position,
    time,
    'refused envelope of ' || participant as what,
    'it was refused without a reason' as message
from envelopes
where not accepted and coalesce(reason, '') = ''
union all
select space, position, time, 'refused frame of ' || participant, 'it was refused without a reason'
from system_records
where event = 'frame_rejected' and coalesce(reason, '') = ''
