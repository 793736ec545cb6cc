package fromcue_test

// unsupported are schemas with constructs that a form cannot express, or that CUE interprets in an
// unexpected way.
var unsupported = []refusal{
	{
		name: "a union of lists",
		left: true,
		schema: `
#schema: spec: a: [...int] | [...string] // <-
`,
		message: "a union of lists",
	},
	{
		name: "bytes",
		schema: `
#schema: spec: a: bytes // <-
`,
		message: "the type bytes",
	},
	{
		name: "float",
		schema: `
#schema: spec: a: float & >0 // <-
`,
		message: "the type float",
	},
	{
		name: "a constant with a fraction of zero",
		schema: `
#schema: spec: a: 1.0 // <-
`,
		message: "the constant 1.0",
	},
	{
		name: "a constant of more than 64 bits",
		schema: `
#schema: spec: a: 9223372036854775808 // <-
`,
		message: "an integer that does not fit in 64 bits",
	},
	{
		name: "bounds on strings",
		left: true,
		schema: `
#schema: spec: a: >"a" // <-
`,
		message: "which is not a number",
	},
	{
		name: "anything but one value",
		left: true,
		schema: `
#schema: spec: a: !=null // <-
`,
		message: "which may be of many kinds",
	},
	{
		name: "an unknown validator",
		left: true,
		schema: `
import "struct"
#schema: spec: a: struct.MaxFields(3) // <-
`,
		message: "a limit on the number of fields",
	},
	{
		name: "a validator of a string that is not supported",
		left: true,
		schema: `
import "strings"
#schema: spec: a: strings.ContainsAny("ab") // <-
`,
		message: "the builtin strings.ContainsAny",
	},
	{
		name: "a validator under another name",
		left: true,
		schema: `
import strings "struct"
#schema: spec: a: strings.MinFields(2) // <-
`,
		message: "a limit on the number of fields",
	},
	{
		name: "matchN",
		left: true,
		schema: `
#schema: spec: a: matchN(1, [int, number]) // <-
`,
		message: "the builtin matchN",
	},
	{
		name: "an error literal",
		schema: `
#schema: spec: a!: _|_ // <-
`,
		message: "_|_",
	},
	{
		name: "a contradiction",
		schema: `
#schema: spec: a?: int & string // <-
`,
		message: "conflicting values",
	},
	{
		name: "a contradiction of bounds",
		schema: `
#schema: spec: a?: >5 & <3 // <-
`,
		message: "incompatible",
	},
	{
		name: "a recursive definition",
		left: true,
		schema: `
#tree: {
	value!: int
	child?: #tree // <-
}
#schema: spec: #tree`,
		message: "a recursive definition",
	},
	{
		name: "a recursive definition with many branches",
		left: true,
		schema: `
#json: {
	a?: #json // <-
	b?: #json
	c?: [...#json]
	d?: [string]: #json
	e?: null | #json
}
#schema: spec: #json`,
		message: "a recursive definition",
	},
	{
		name: "definitions that refer to each other",
		left: true,
		schema: `
#a: b?: #b // <-
#b: a?: [...#a]
#schema: spec: #a`,
		message: "a recursive definition",
	},
	{
		name: "a recursive list",
		left: true,
		schema: `
#list: [...#list] // <-
#schema: spec: a?: #list`,
		message: "a recursive definition",
	},
	{
		name: "a recursive alternative",
		left: true,
		schema: `
#v: null | {v: int, next: #v}
#schema: spec: a?: #v // <-
`,
		message: "a recursive definition",
	},
	{
		name: "list.MinItems in an alternative",
		schema: `
import "list"
#schema: spec: a: null | ([...int] & list.MinItems(1)) // <-
`,
		message: "list.MinItems in one of several alternatives",
	},
	{
		name: "list.MinItems below an alternative",
		schema: `
import "list"
#schema: spec: a: null | {b: [...int] & list.MinItems(1)} // <-
`,
		message: "list.MinItems in one of several alternatives",
	},
	{
		name: "structs without duplicates",
		left: true,
		schema: `
import "list"
#item: {a?: int}
#schema: spec: a: [...#item] & list.UniqueItems() // <-
`,
		message: "a list without duplicates",
	},
	{
		name: "anything without duplicates",
		left: true,
		schema: `
import "list"
#schema: spec: a?: [...] & list.UniqueItems() // <-
`,
		message: "a list without duplicates",
	},
	{
		name: "a hidden contradiction",
		schema: `
#schema: spec: a?: {
	b:  int
	_c: 1 & 2 // <-
}`,
		message: "conflicting values 2 and 1",
	},
	{
		name: "a field that must be there, and that a closed conjunct does not have",
		schema: `
#a: {a?: int}
#schema: spec: #a & {b!: int} // <-
`,
		message: "a field that can never be set",
	},
	{
		name: "two closed conjuncts without a common field",
		schema: `
#a: {a?: int} // <-
#b: {b?: int}
#schema: spec: #a & #b
`,
		message: "a field that can never be set",
	},
	{
		name: "patterns of structs that overlap",
		left: true,
		schema: `
#schema: spec: {
	[=~"^a"]: {x?: int} // <-
	[=~"b$"]: {y?: int}
}`,
		message: "several patterns",
	},
	{
		name: "patterns in parts",
		left: true,
		schema: `
#a: [=~"^a"]: int
#b: [=~"^ab"]: int
#schema: spec: a: #a & #b // <-
`,
		message: "a pattern in a closed struct that is made of several parts",
	},
	{
		name: "a pattern that is not a string",
		schema: `
#schema: spec: {[int]: string} // <-
`,
		message: "a pattern that is not a string",
	},
	{
		name: "an unknown attribute",
		schema: `
#schema: spec: {
	a: string @k8s(colour=red) // <-
}`,
		message: `@k8s(colour=red)`,
	},
	{
		name: "an unknown attribute of stele",
		schema: `
#schema: spec: {
	a: string @stele(secret) // <-
}`,
		message: `@stele(secret)`,
	},
	{
		name: "a list type on a string",
		schema: `
#schema: spec: {
	a: string @k8s(listType=set) // <-
}`,
		message: `on a field that is not a list`,
	},
	{
		name: "a set of structs",
		schema: `
#schema: spec: {
	a: [...{b: int}] @k8s(listType=set) // <-
}`,
		message: `the items of a set must be scalars or of type atomic`,
	},
	{
		name: "an unknown list type",
		schema: `
#schema: spec: {
	a: [...int] @k8s(listType=bag) // <-
}`,
		message: `@k8s(listType=bag)`,
	},
	{
		name: "keys without a list type",
		schema: `
#schema: spec: {
	a: [...{b!: int}] @k8s(listMapKeys=b) // <-
}`,
		message: `only a list of type map has keys`,
	},
	{
		name: "a map without keys",
		schema: `
#schema: spec: {
	a: [...{b!: int}] @k8s(listType=map) // <-
}`,
		message: `a list of type map needs keys`,
	},
	{
		name: "a key that the items lack",
		schema: `
#schema: spec: {
	a: [...{b!: int}] @k8s(listType=map,listMapKeys=c) // <-
}`,
		message: `the items have no field c`,
	},
	{
		name: "a key that may be missing",
		schema: `
#schema: spec: {
	a: [...{b?: int}] @k8s(listType=map,listMapKeys=b) // <-
}`,
		message: `the key b must be required or have a default`,
	},
	{
		name: "a key that is a list",
		schema: `
#schema: spec: {
	a: [...{b!: [...int]}] @k8s(listType=map,listMapKeys=b) // <-
}`,
		message: `the key b must be a scalar, not list`,
	},
	{
		name: "an unknown format",
		schema: `
#schema: spec: {
	a: string @k8s(format=postcode) // <-
}`,
		message: `which nothing would enforce`,
	},
	{
		name: "a format of a struct",
		schema: `
#schema: spec: {
	a: {...} @k8s(format=uuid) // <-
}`,
		message: `on a field that is not a string`,
	},
	{
		name: "an int or string that is neither",
		schema: `
#schema: spec: {
	a: int @k8s(intOrString) // <-
}`,
		message: `on a field that is not int | string`,
	},
	{
		name: "nullable without null",
		schema: `
#schema: spec: {
	a: int @k8s(nullable) // <-
}`,
		message: `on a field that admits no null`,
	},
	{
		name: "an embedded resource that is a list",
		schema: `
#schema: spec: {
	a: [...] @k8s(embeddedResource) // <-
}`,
		message: `on a field that is not a struct`,
	},
	{
		name: "unknown fields of a closed struct",
		schema: `
#schema: spec: {
	a: {b: int} @k8s(preserveUnknownFields) // <-
}`,
		message: `on a struct that admits none`,
	},
	{
		name: "metadata",
		schema: `
#schema: {
	metadata: name: string // <-
	spec: {}
}`,
		message: "belong to the server",
	},
	{
		name:    "a schema that is not a struct",
		schema:  "\n#schema: string // <-\n",
		message: "a schema must be a struct",
	},
	{
		name:    "a schema with alternatives",
		schema:  "\n#schema: {spec: int} | null // <-\n",
		message: "a schema must be a struct",
	},
	{
		name: "a default that is open",
		left: true,
		schema: `
#schema: spec: a: *{b: 1, ...} | {b: int} // <-
`,
		message: "a default that is not plain data",
	},
	{
		name: "braces around a list",
		left: true,
		schema: `
#schema: spec: a: {[...int]} // <-
`,
		message: "braces around a list",
	},
	{
		name: "a bound from a package that is not known",
		schema: `
#schema: spec: a: <=#limit // <-
#limit: int`,
		message: "a bound that is not a constant",
	},
}
