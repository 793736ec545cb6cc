package changes

// SwaggerDoc has what OpenAPI says of the fields, as of Kubernetes' own types.
func (Change) SwaggerDoc() map[string]string {
	return map[string]string{
		"":                 "Change is one revision of the log.",
		"revision":         "Revision of the change, which is the name, too.",
		"time":             "Time of the log, with nanoseconds.",
		"type":             "Created, Updated, Deleted, or one of the log's own: LogCreated, PolicyChunk, PolicyProposed, PolicyActivated, EpochStarted, LevelRaised.",
		"object":           "What the change is about.",
		"previousRevision": "Revision at which the object was changed before.",
		"actor":            "Who made the change.",
		"request":          "How the change was made.",
		"decision":         "What allowed the change.",
		"policy":           "Digest of the policy in force; of a PolicyProposed or PolicyActivated, of the policy that it is about.",
	}
}
