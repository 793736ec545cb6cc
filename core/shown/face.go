package shown

import "github.com/tidwall/gjson"

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
