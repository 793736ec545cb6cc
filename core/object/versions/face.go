package versions

import "github.com/tidwall/gjson"

// rename appends an object with the field names of the face. It omits empty strings, as the Go types of faces do.
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
