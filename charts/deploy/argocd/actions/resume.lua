-- Asks the operator, as `slipway` does; the answer is in status.lastAction.
obj.status = obj.status or {}
obj.status.action = { id = "argocd-" .. tostring(os.time()) .. "-resume", verb = "Resume", by = "argocd", reason = "" }
return obj
