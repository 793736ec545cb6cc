package openapi

// SameDocument reports whether two services share the document at a path.
func SameDocument(a, b *Service, path string) bool {
	path = path[len("/openapi/v3/"):]
	return a.groups[path].document == b.groups[path].document
}

// Made reports which documents of a service were built: the index, and OpenAPI v2.
func Made(s *Service) (index, v2 bool) { return s.index.made(), s.v2.made() }
