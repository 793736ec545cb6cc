package changes

// SwaggerDoc has what OpenAPI says of the fields, as of Kubernetes' own types.
func (Change) SwaggerDoc() map[string]string {
	return map[string]string{
		"":                 "Change is one revision of the log. A list has the newest first, and without a field selector the last 1000 revisions; a watch goes on from any revision. Beside its fields, changes are selected by since=REVISION|TIME and until=REVISION|TIME, both included, and by difference.path=FIELD; labelSelector selects by the labels of the object, before the change or after it. Who may not read an object, as it was then, does not see its changes.",
		"revision":         "Revision of the change, which is the name, too.",
		"time":             "Time of the log, with nanoseconds.",
		"type":             "Created, Updated, Deleted, or one of the log's own: LogCreated, PolicyChunk, PolicyProposed, PolicyActivated, EpochStarted, LevelRaised, ClockSet.",
		"object":           "What the change is about.",
		"previousRevision": "Revision at which the object was changed before.",
		"actor":            "Who made the change.",
		"request":          "How the change was made.",
		"decision":         "What allowed the change.",
		"policy":           "Digest of the policy in force; of a PolicyProposed or PolicyActivated, of the policy that it is about.",
		"difference":       "What differs from the version before: of a new object what was said of it, of a deleted one what was. Left out with the query parameter difference=false.",
	}
}

// SwaggerDoc has what OpenAPI says of the fields.
func (Object) SwaggerDoc() map[string]string {
	return map[string]string{
		"":            "Object is what a change is about.",
		"group":       "API group of the object; empty for the core group.",
		"version":     "Version in which the object was written.",
		"resource":    "Plural name of the resource.",
		"kind":        "Kind of the object.",
		"namespace":   "Namespace of the object, if it is in one.",
		"name":        "Name of the object.",
		"uid":         "UID of the object. Objects that had the name one after the other have different ones.",
		"previousUID": "UID of the object that had the name before this one was created.",
		"sensitive":   "Whether the object held secrets, before the change or after it.",
	}
}

// SwaggerDoc has what OpenAPI says of the fields.
func (Actor) SwaggerDoc() map[string]string {
	return map[string]string{
		"":             "Actor is who made a change.",
		"user":         "User in whose name it was made.",
		"groups":       "Groups of the user.",
		"impersonator": "User who sent the request, if that was another one.",
	}
}

// SwaggerDoc has what OpenAPI says of the fields.
func (Request) SwaggerDoc() map[string]string {
	return map[string]string{
		"":             "Request is how a change was made.",
		"verb":         "Verb of the request: create, update, patch, delete or deletecollection.",
		"subresource":  "Subresource that was written, if it was one.",
		"auditID":      "Audit id of the request, by which the audit log has it.",
		"userAgent":    "User agent of the client.",
		"sourceIPs":    "Addresses that the request came from.",
		"fieldManager": "Field manager that the request named.",
		"status":       "HTTP status of the answer.",
		"version":      "Version of the object in the request.",
	}
}

// SwaggerDoc has what OpenAPI says of the fields.
func (Decision) SwaggerDoc() map[string]string {
	return map[string]string{
		"":             "Decision is what allowed a change.",
		"authorizer":   "Authorizer that decided.",
		"rule":         "Id of the binding that granted it.",
		"source":       "File and line of that.",
		"reason":       "What an authorizer outside of the policy gave as its reason.",
		"program":      "Checksum of the plugin that decided.",
		"createRule":   "Id of the binding that let an update or a patch create the object.",
		"createSource": "File and line of that.",
		"findings":     "What admission rules found that did not refuse it.",
	}
}

// SwaggerDoc has what OpenAPI says of the fields.
func (Finding) SwaggerDoc() map[string]string {
	return map[string]string{
		"":        "Finding is what an admission rule found.",
		"rule":    "Id of the rule.",
		"source":  "File and line of the rule.",
		"actions": "What was done about it: Warn, Audit.",
		"message": "Message of the rule.",
	}
}
