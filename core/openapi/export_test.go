package openapi

// SameDocument tells whether two services share the document at a path.
func SameDocument(a, b *Service, path string) bool {
	path = path[len("/openapi/v3/"):]
	return a.groups[path].document == b.groups[path].document
}

// Made tells what of a service has been made.
func Made(s *Service) (index, v2 bool) { return s.index.made(), s.v2.made() }
