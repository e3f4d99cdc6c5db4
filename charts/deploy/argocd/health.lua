-- Argo CD's health of a ModelDeployment. The order is that of kstatus, which Flux, Helm and kubectl go by, so that all
-- of them say the same; what only Argo CD has words for (Suspended) comes where kstatus would say "in progress".
local function condition(name)
  for _, entry in ipairs(obj.status.conditions or {}) do
    if entry.type == name then
      return entry
    end
  end
  return { status = "Unknown" }
end

local function health(status, message)
  return { status = status, message = message or "" }
end

if obj.metadata.deletionTimestamp ~= nil then
  return health("Progressing", "is being deleted")
end
if obj.status == nil or obj.status.conditions == nil then
  return health("Progressing", "the operator has not looked at it yet; is it running?")
end
if obj.metadata.generation ~= nil and obj.status.observedGeneration ~= obj.metadata.generation then
  return health("Progressing", "the operator has not looked at the newest spec yet")
end

local ready, stalled = condition("Ready"), condition("Stalled")
if stalled.status == "True" then
  return health("Degraded", stalled.message)
end
if obj.status.phase == "Suspended" or obj.status.phase == "Paused" then
  return health("Suspended", ready.message)
end
if obj.status.phase == "Degraded" then
  return health("Degraded", ready.message)
end
if condition("Reconciling").status == "True" then
  return health("Progressing", condition("Reconciling").message)
end
if ready.status == "True" then
  return health("Healthy", ready.message)
end
return health("Progressing", ready.message)
