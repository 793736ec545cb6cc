package gitrepo

// MaxList is the limit of the list of files.
var MaxList = &maxList
