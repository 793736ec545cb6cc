package changes

// SwaggerDoc returns the OpenAPI descriptions of the fields.
func (Change) SwaggerDoc() map[string]string {
	return map[string]string{
		"":                 "Change is one revision of the log. A list starts with the newest, and without a field selector it has the last 1000 revisions; a watch can start at any revision. A field selector can name the fields of a change, since=REVISION|TIME and until=REVISION|TIME (both inclusive), and difference.path=FIELD. A label selector matches the labels of the object before or after the change. Users see changes only of objects that they may read, as the objects were at that revision.",
		"revision":         "Revision of the change; also its name.",
		"time":             "Time of the log, with nanoseconds.",
		"type":             "Created, Updated, Deleted, or one of the log's own: LogCreated, PolicyChunk, PolicyProposed, PolicyActivated, EpochStarted, LevelRaised, ClockSet.",
		"object":           "What the change is about.",
		"previousRevision": "Revision of the previous change of the object.",
		"actor":            "Who made the change.",
		"request":          "How the change was made.",
		"decision":         "What allowed the change.",
		"policy":           "Digest of the policy in force; for PolicyProposed and PolicyActivated, of the proposed or activated policy.",
		"difference":       "Difference to the previous version: for a new object the fields that the request set, for a deleted one all its fields. Omitted with the query parameter difference=false.",
	}
}

// SwaggerDoc returns the OpenAPI descriptions of the fields.
func (Object) SwaggerDoc() map[string]string {
	return map[string]string{
		"":            "Object is what a change is about.",
		"group":       "API group of the object; empty for the core group.",
		"version":     "Version in which the object was written.",
		"resource":    "Plural name of the resource.",
		"kind":        "Kind of the object.",
		"namespace":   "Namespace of the object, if it is in one.",
		"name":        "Name of the object.",
		"uid":         "UID of the object. It differs between objects that had the same name one after the other.",
		"previousUID": "UID of the earlier object with the same name.",
		"sensitive":   "Whether the object held secrets, before the change or after it.",
	}
}

// SwaggerDoc returns the OpenAPI descriptions of the fields.
func (Actor) SwaggerDoc() map[string]string {
	return map[string]string{
		"":             "Actor is who made a change.",
		"user":         "User who made it.",
		"groups":       "Groups of the user.",
		"impersonator": "User who sent the request, if it was impersonated.",
	}
}

// SwaggerDoc returns the OpenAPI descriptions of the fields.
func (Request) SwaggerDoc() map[string]string {
	return map[string]string{
		"":             "Request is how a change was made.",
		"verb":         "Verb of the request: create, update, patch, delete or deletecollection.",
		"subresource":  "Subresource that was written, if any.",
		"auditID":      "Audit ID of the request in the audit log.",
		"userAgent":    "User agent of the client.",
		"sourceIPs":    "Addresses that the request came from.",
		"fieldManager": "Field manager that the request named.",
		"status":       "HTTP status of the answer.",
		"version":      "Version of the object in the request.",
	}
}

// SwaggerDoc returns the OpenAPI descriptions of the fields.
func (Decision) SwaggerDoc() map[string]string {
	return map[string]string{
		"":             "Decision is what allowed a change.",
		"authorizer":   "Authorizer that decided.",
		"rule":         "ID of the binding that granted it.",
		"source":       "File and line of the binding.",
		"reason":       "Reason that an authorizer outside of the policy gave.",
		"program":      "Checksum of the plugin that decided.",
		"createRule":   "ID of the binding that let an update or a patch create the object.",
		"createSource": "File and line of the binding.",
		"findings":     "Findings of admission rules that did not reject it.",
	}
}

// SwaggerDoc returns the OpenAPI descriptions of the fields.
func (Finding) SwaggerDoc() map[string]string {
	return map[string]string{
		"":        "Finding is what an admission rule found.",
		"rule":    "ID of the rule.",
		"source":  "File and line of the rule.",
		"actions": "Action that was taken: Warn or Audit.",
		"message": "Message of the rule.",
	}
}
