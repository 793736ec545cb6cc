package shown

import (
	"github.com/tidwall/gjson"
	"stele.dev/stele/schemas/builtin"
)

// Through shows objects of the kind that a face is of, in this version of the face.
func (v Version) Through(face *builtin.Face) Version {
	v.face = face
	return v
}

// rename appends an object with the names that the face has for its fields. Strings that are
// empty are left out, as by the Go types of faces.
func (v Version) rename(to, json []byte) []byte {
	to = append(to, v.head...)
	gjson.ParseBytes(json).ForEach(func(key, value gjson.Result) bool {
		if key.Str == "apiVersion" || value.Raw == `""` {
			return true
		}
		to = append(to, `,"`...)
		to = append(to, v.face.ShownField(key.Str)...)
		to = append(to, `":`...)
		to = append(to, value.Raw...)
		return true
	})
	return append(to, '}')
}
