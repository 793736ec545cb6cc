package buckets

import (
	_ "gocloud.dev/blob/s3blob" // s3://
)

// Tag is the build tag with which the program has the drivers of all buckets. Without it, it has those of s3:// alone:
// the others import 326 packages, which few users need and everybody would compile.
const Tag = "allbuckets"

// tagged are the schemes whose drivers need the build tag.
var tagged = []string{"gs", "azblob"}
