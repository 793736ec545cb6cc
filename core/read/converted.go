package read

import (
	"runtime"

	"stele.dev/stele/core/call"
	"stele.dev/stele/core/object/versions"
	"stele.dev/stele/core/status"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/objects"
)

// convertedBytes bounds the objects that are kept in another version than they are stored in.
const convertedBytes = 16 << 20

// shown is an object as a version of its kind shows it.
type shown struct {
	*objects.Object
	as *policy.Version
}

// convert returns an object in a version. What had to be converted is kept, so that lists and watches of many clients convert it
// once.
func (rd *Reader) convert(c *call.Call, in versions.Version, o *objects.Object) ([]byte, error) {
	if !in.Converting() || !in.Converts(o.JSON) {
		return in.Of(o.JSON)
	}
	key := shown{o, c.Kind}
	if text, found := rd.converted.Get(key); found {
		return text, nil
	}
	text, err := in.Of(o.JSON)
	if err != nil {
		return nil, status.Internal(err)
	}
	rd.converted.Add(key, text, len(text)+len(o.JSON))
	return text, nil
}

// convertAll returns objects in a version. The error is that of the first one that cannot be converted.
func (rd *Reader) convertAll(c *call.Call, in versions.Version, found []*objects.Object) ([][]byte, error) {
	texts := make([][]byte, len(found))
	for i, o := range found {
		var err error
		if texts[i], err = rd.convert(c, in, o); err != nil {
			return nil, err
		}
		if i%convertedAtOnce == 0 {
			runtime.Gosched()
		}
	}
	return texts, nil
}
