package client

// DocumentVersion is of what commands themselves say to programs.
const DocumentVersion = "client.stele.dev/v1"

// TimeLayout is how times are shown; moments can be written like it.
const TimeLayout = "2006-01-02 15:04:05Z07:00"
