-- Asks the operator, as `slipway` does; the answer is in status.lastAction.
obj.status = obj.status or {}
obj.status.action = { id = "argocd-" .. tostring(os.time()) .. "-promote-full", verb = "PromoteFull", by = "argocd", reason = "" }
return obj
