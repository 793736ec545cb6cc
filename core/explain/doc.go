package explain

// SwaggerDoc returns the OpenAPI descriptions of the fields.
func (Explanation) SwaggerDoc() map[string]string {
	return map[string]string{
		"":       "Explanation tells why a request is, or was, answered as it is. Creating one asks what would become of a request, and writes nothing; getting one by an audit ID tells what became of that request.",
		"spec":   "Spec is the request.",
		"status": "Status is what becomes of the request.",
	}
}

// SwaggerDoc returns the OpenAPI descriptions of the fields.
func (Spec) SwaggerDoc() map[string]string {
	return map[string]string{
		"":              "Spec is a request: of a resource, or of a path.",
		"verb":          "Verb of the request: get, list, watch, create, update, patch, delete, deletecollection; of a path get, head, post, put, patch or delete.",
		"group":         "API group of the resource; empty for the core group.",
		"version":       "Version of the group. Required for a resource.",
		"resource":      "Plural name of the resource. Exactly one of resource and path must be specified.",
		"subresource":   "Subresource, such as status or scale.",
		"namespace":     "Namespace of the request; empty for resources outside of namespaces, and for requests for all namespaces.",
		"name":          "Name of the object. Required for get, update, patch and delete.",
		"path":          "Path of a request that is not for a resource, such as /metrics.",
		"fieldSelector": "Field selector of a list, watch or deletecollection.",
		"labelSelector": "Label selector of a list, watch or deletecollection.",
		"user":          "User to make the request as; the caller if empty. Other users require the permission to impersonate them.",
		"uid":           "UID of the user.",
		"groups":        "Groups of the user.",
		"extra":         "Further attributes of the user.",
		"object":        "Body of the request. Without it, an explanation of a create or update ends with authorization.",
		"contentType":   "Content type of the body. Patches are merge patches by default.",
		"fieldManager":  "Field manager of the request.",
		"force":         "Force takes fields from other managers. Only for server-side apply.",
	}
}

// SwaggerDoc returns the OpenAPI descriptions of the fields.
func (Status) SwaggerDoc() map[string]string {
	return map[string]string{
		"":         "Status is what becomes of a request.",
		"allowed":  "Allowed is true if the request succeeds, as far as it was decided.",
		"code":     "HTTP status code of the answer; 0 if not all of the request was decided.",
		"reason":   "Reason of a failure, in the words of a Status.",
		"message":  "Message of a failure.",
		"policy":   "Digest of the policy that decided the request.",
		"revision": "Revision of the state that the request was decided on.",
		"written":  "Revision at which the request was written, of one that was.",
		"stages":   "Stages that the request went through, in their order.",
	}
}

// SwaggerDoc returns the OpenAPI descriptions of the fields.
func (Stage) SwaggerDoc() map[string]string {
	return map[string]string{
		"":           "Stage is what one stage of the request pipeline decided.",
		"name":       "Name of the stage.",
		"verdict":    "Verdict is passed, refused, or open: it depends on what the request does not say.",
		"rule":       "ID of the rule that decided.",
		"source":     "File and line of the rule.",
		"message":    "Message of the stage.",
		"considered": "Rules and authorizers that the stage asked.",
	}
}

// SwaggerDoc returns the OpenAPI descriptions of the fields.
func (Considered) SwaggerDoc() map[string]string {
	return map[string]string{
		"":        "Considered is a rule or an authorizer, and its answer.",
		"rule":    "ID of the rule, or name of the authorizer.",
		"source":  "File and line of the rule.",
		"verdict": "Verdict is what it decided.",
		"reason":  "Reason that an authorizer outside of the policy gave.",
		"detail":  "Detail that an authorizer outside of the policy gave to operators.",
	}
}
