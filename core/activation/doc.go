package activation

// SwaggerDoc has what OpenAPI says of the fields, as of Kubernetes' own types.
func (Policy) SwaggerDoc() map[string]string {
	return map[string]string{
		"":       "Policy is what a control plane enforces. Creating one puts it in force.",
		"spec":   "The source of a bundle.",
		"status": "What became of it.",
	}
}

// SwaggerDoc is that of [Policy.SwaggerDoc].
func (Spec) SwaggerDoc() map[string]string {
	return map[string]string{
		"package":    "Folder of the bundle's package in the module, \".\" for its root.",
		"files":      "Files of the CUE module.",
		"replaces":   "Digest of the policy that this one is meant to replace; another one in force is a conflict. Not checked if empty.",
		"rename":     "Allows the policy to be of another control plane, by its bundle's cluster, than the one in force.",
		"dropFields": "Allows the policy to lack fields that stored objects have; without it that is a conflict.",
		"commit":     "Commit of the repository that the files come from.",
	}
}

// SwaggerDoc is that of [Policy.SwaggerDoc].
func (Status) SwaggerDoc() map[string]string {
	return map[string]string{
		"digest":    "Digest of the policy, its name.",
		"revision":  "Revision from which on it is, or was last, in force.",
		"revisions": "Revisions from which on it was in force, the newest first.",
		"actor":     "Who activated it.",
		"inForce":   "Whether it is in force.",
		"cluster":   "Control plane that the bundle is of. Lists have it of the one in force.",
		"kinds":     "How many kinds there are. Lists have it of the one in force.",
		"contents":  "What the bundle has of each part, and how that differs from the policy that it replaces. The answer to a create has it.",
	}
}

// SwaggerDoc is that of [Policy.SwaggerDoc].
func (Content) SwaggerDoc() map[string]string {
	return map[string]string{
		"":        "Content is one part of a bundle, without what is built in, compared with the policy that it replaces.",
		"part":    "One of kinds, roles, bindings, denies, rules and validations.",
		"count":   "How many there are.",
		"added":   "Ids of those that the policy before did not have.",
		"removed": "Ids of those that only the policy before had.",
		"changed": "Ids of those that differ.",
	}
}
