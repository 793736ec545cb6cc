package access

// SwaggerDoc returns the OpenAPI descriptions of the fields.
func (Review) SwaggerDoc() map[string]string {
	return map[string]string{
		"":       "ResourceAccessReview lists who can do something, by which rules, and since when. It is answered when it is created, and not stored.",
		"spec":   "Spec is what is asked.",
		"status": "Status is the answer.",
	}
}

// SwaggerDoc returns the OpenAPI descriptions of the fields.
func (ReviewSpec) SwaggerDoc() map[string]string {
	return map[string]string{
		"":             "ReviewSpec is an action, and the moment that it is asked about: now, if neither a revision nor a time is given.",
		"verb":         "Verb of the action, in lower case.",
		"group":        "API group of the resource; empty for the core group.",
		"resource":     "Plural name of the resource. Exactly one of resource and path must be specified.",
		"subresource":  "Subresource, such as status.",
		"name":         "Name of the object; any if empty.",
		"namespace":    "Namespace of the action; empty for resources outside of namespaces, and for requests for all namespaces.",
		"anyNamespace": "AnyNamespace asks who may do it in some namespace or outside of namespaces. May not be given together with namespace.",
		"path":         "Path of a request that is not for a resource.",
		"revision":     "Revision to answer for. May not be given together with a time.",
		"time":         "Time to answer for, in RFC 3339.",
	}
}

// stateDocs adds the documentation of the fields of State, for types that embed it.
func stateDocs(docs map[string]string) map[string]string {
	docs["revision"] = "Revision that the answer is of; 0 for an access that was sent."
	docs["policy"] = "Digest of the policy that was in force there."
	docs["policyRevision"] = "Revision at which that policy was activated."
	return docs
}

// SwaggerDoc returns the OpenAPI descriptions of the fields.
func (State) SwaggerDoc() map[string]string {
	return stateDocs(map[string]string{"": "State is a policy in force at a revision."})
}

// SwaggerDoc returns the OpenAPI descriptions of the fields.
func (ReviewStatus) SwaggerDoc() map[string]string {
	return stateDocs(map[string]string{
		"":            "ReviewStatus is who can do what was asked.",
		"authorizers": "Authorizers of the policy, in the order in which they are asked.",
		"holders":     "Holders are the subjects that the policy grants it to, also those to whom a deny takes it.",
		"denies":      "Denies that are about it, whomever they meet.",
		"outsiders":   "Outsiders are authorizers outside of the policy, whose decisions cannot be listed.",
	})
}

// SwaggerDoc returns the OpenAPI descriptions of the fields.
func (Holder) SwaggerDoc() map[string]string {
	return map[string]string{
		"":           "Holder is a subject that may do it, by one rule.",
		"subject":    "Subject is the user or the group.",
		"binding":    "Binding that grants it.",
		"role":       "Role that the binding grants.",
		"rule":       "Rule of the role.",
		"namespaces": "Namespaces of the binding: names, and patterns of names; * is all.",
		"names":      "Names of the objects, if not all.",
		"when":       "When is the condition of the grant, in CEL.",
		"denied":     "Denied is true if a deny takes all of it away.",
		"denies":     "Denies that meet the subject.",
		"since":      "Since when the subject has had it without interruption, by whatever rule.",
	}
}

// SwaggerDoc returns the OpenAPI descriptions of the fields.
func (Since) SwaggerDoc() map[string]string {
	return map[string]string{
		"":         "Since is the activation of a policy.",
		"revision": "Revision of the activation.",
		"time":     "Time of the activation.",
		"policy":   "Digest of the policy.",
		"actor":    "User who activated it.",
		"atLeast":  "AtLeast is true if the subject may have had it before.",
	}
}

// SwaggerDoc returns the OpenAPI descriptions of the fields.
func (Difference) SwaggerDoc() map[string]string {
	return map[string]string{
		"":       "AccessDifference tells who gained or lost what from one policy to another. It is answered when it is created, and not stored.",
		"spec":   "Spec is what is compared.",
		"status": "Status is the answer.",
	}
}

// SwaggerDoc returns the OpenAPI descriptions of the fields.
func (DifferenceSpec) SwaggerDoc() map[string]string {
	return map[string]string{
		"":          "DifferenceSpec is what is compared, and which part of the answer is wanted.",
		"from":      "From is the earlier side; the policy in force now if it is empty.",
		"to":        "To is the later side; the policy in force now if it is empty.",
		"subjects":  "Subjects to compare; all if empty.",
		"namespace": "Namespace to compare; all if absent.",
	}
}

// SwaggerDoc returns the OpenAPI descriptions of the fields.
func (Side) SwaggerDoc() map[string]string {
	return map[string]string{
		"":         "Side is the policy in force at a revision or a time, now if neither is given, or an access that is sent.",
		"revision": "Revision at which the policy was in force.",
		"time":     "Time at which the policy was in force, in RFC 3339.",
		"access":   "Access of a policy that is not in force, as the compiler writes it.",
	}
}

// SwaggerDoc returns the OpenAPI descriptions of the fields.
func (DifferenceStatus) SwaggerDoc() map[string]string {
	return map[string]string{
		"":        "DifferenceStatus is who gained or lost what.",
		"from":    "From is the state that the earlier side was taken from.",
		"to":      "To is the state that the later side was taken from.",
		"chain":   "Chain is how the authorizers differ.",
		"changes": "Changes of what subjects may do.",
	}
}
