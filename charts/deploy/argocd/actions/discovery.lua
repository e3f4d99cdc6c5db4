-- Which actions Argo CD offers, by what the rollout is doing.
local status = obj.status or {}
local rollout = status.rollout or {}
local ended = rollout.stage == nil or rollout.stage == "Finished" or rollout.outcome ~= nil
local moving = not ended and status.phase ~= "Suspended"
local failed = status.phase == "Stalled" and (rollout.outcome == "RolledBack" or rollout.outcome == "Aborted"
  or rollout.outcome == "Failed")

return {
  ["promote"] = { disabled = not moving, displayName = "Promote" },
  ["promote-full"] = { disabled = not moving, displayName = "Promote fully" },
  ["pause"] = { disabled = not moving or rollout.paused == true, displayName = "Pause" },
  ["resume"] = { disabled = not moving or rollout.paused ~= true, displayName = "Resume" },
  ["abort"] = { disabled = not moving, displayName = "Abort" },
  ["retry"] = { disabled = not failed, displayName = "Retry" },
}
