// Package stored gives CEL expressions the stored objects of a kind. An admission rule declares the kinds that it reads, each by
// a name, and its expressions have a variable objects.NAME for each:
//
//	objects.databases.get("prod", "main")                        // optional: the object, if there is one
//	objects.databases.namespace("prod").count()                  // how many there are
//	objects.databases.where("spec.owner", "eve").exists()        // whether there is one
//	objects.databases.labels({"tier": "gold"}).others().list()   // all of them, without the object that is written
//
// namespace, name, labels, where and others narrow a selection; get, exists, count and list read. The value of a variable is
// of the opaque type stele.Objects with the type of the kind's objects as its parameter, so that what get and list return is
// type-checked. [Library] declares the functions. [Check] checks what types cannot express: that the field of a where is a
// constant and one that can be selected.
//
// What expressions read comes from a [Source]: the state that the write is decided on. The committer refuses the write if it
// would be read otherwise at the write's revision, so that of two racing writes that exclude each other only one passes.
package stored
