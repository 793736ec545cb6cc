package difference

//go:generate go run stele.dev/stele/core/catalog/openapi/internal/swaggerdoc

// Entry is one difference between two objects.
type Entry struct {
	// Path is the path of the field, such as spec.containers[0].image or metadata.labels["example.com/tier"]. Items of
	// lists of type map are named by their keys, such as spec.ports[name=http]. Indexes are those of the new object. If
	// an item was removed, its own index is that of the old object.
	Path string `json:"path"`
	// Op is what happened to the field: add, remove or replace.
	Op string `json:"op"`
	// From is the old value; absent, like null, if there was none.
	From any `json:"from,omitempty"`
	// To is the new value; absent, like null, if there is none.
	To any `json:"to,omitempty"`
}
