package activation

// SwaggerDoc returns the OpenAPI descriptions of the fields.
func (Policy) SwaggerDoc() map[string]string {
	return map[string]string{
		"":       "Policy is what a control plane enforces. Creating one puts it in force.",
		"spec":   "The source of a bundle.",
		"status": "State of the policy.",
	}
}

// SwaggerDoc returns the OpenAPI descriptions of the fields.
func (Spec) SwaggerDoc() map[string]string {
	return map[string]string{
		"package":    "Folder of the bundle's package in the module, \".\" for its root.",
		"files":      "Files of the CUE module.",
		"replaces":   "Digest of the policy to replace; if another policy is in force, the request is a conflict. Not checked if empty.",
		"rename":     "Allows the bundle to have another cluster name than the policy in force.",
		"dropFields": "Allows the policy to lack fields that stored objects have; without it that is a conflict.",
		"commit":     "Commit of the repository that the files come from.",
	}
}

// SwaggerDoc returns the OpenAPI descriptions of the fields.
func (Status) SwaggerDoc() map[string]string {
	return map[string]string{
		"digest":    "Digest of the policy; also its name.",
		"revision":  "Revision of its last activation.",
		"revisions": "Revisions of all its activations, newest first.",
		"actor":     "User who activated it.",
		"inForce":   "Whether it is in force.",
		"cluster":   "Name of the control plane that the bundle is for. In a list, only the policy in force has it.",
		"kinds":     "Number of kinds. In a list, only the policy in force has it.",
		"contents":  "Contents of the bundle by part, compared with the policy that it replaces. Only the answer to a create has it.",
	}
}

// SwaggerDoc returns the OpenAPI descriptions of the fields.
func (Content) SwaggerDoc() map[string]string {
	return map[string]string{
		"":        "Content is one part of a bundle, without built-in rules, compared with the policy that it replaces.",
		"part":    "One of kinds, roles, bindings, denies, rules and validations.",
		"count":   "Number of entries.",
		"added":   "IDs that the replaced policy did not have.",
		"removed": "IDs that only the replaced policy had.",
		"changed": "IDs of entries that differ.",
	}
}
