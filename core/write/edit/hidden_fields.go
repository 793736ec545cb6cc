package edit

import (
	"stele.dev/stele/core/object/canonical"
	"stele.dev/stele/core/object/metadata"
	"stele.dev/stele/core/object/versions"
)

// keepHidden returns the object to store if the stored one has hidden fields that the write must keep; else nil. A
// field is hidden if the schema in force lacks it; it is shown again when a schema has it again. A write replaces a
// top-level field (spec, status, ...) only if it changes it, so that adding a label does not drop hidden fields of
// the spec. The payload is the object after the write. An object that was written in a version with another form keeps nothing.
func (d *Draft) keepHidden(payload []byte) ([]byte, error) {
	stored := d.Old.Kept()
	if stored == nil || d.Kind.Kind.Face != nil || d.Kind.Kind.Converted() && d.Kind.Kind.Storage().From(versions.NameOf(stored)) {
		return nil, nil
	}
	meta, content, err := metadata.DecodeStored(payload)
	if err != nil {
		return nil, err
	}
	_, was, err := metadata.DecodeStored(stored)
	if err != nil {
		return nil, err
	}
	_, pruned, err := metadata.DecodeStored(stored)
	if err != nil {
		return nil, err
	}
	if unknown, _, _ := d.Kind.Kind.Stored().Storage().Program.TryPrepare(pruned); len(unknown) == 0 {
		return nil, nil // it differs by defaults only, which are stored with the object
	}
	_, shown, err := metadata.DecodeStored(d.Old.JSON)
	if err != nil {
		return nil, err
	}
	next := make(map[string]any, len(content))
	keeps := false
	for part, value := range content {
		next[part] = value
		if is, has := shown[part]; has && canonical.Equal(is, value) && was[part] != nil && !canonical.Equal(was[part], value) {
			next[part], keeps = was[part], true
		}
	}
	for part, value := range was { // a top-level field that is hidden
		if _, shows := shown[part]; !shows && content[part] == nil {
			next[part], keeps = value, true
		}
	}
	if !keeps {
		return nil, nil
	}
	return d.encodeStored(meta, next)
}
