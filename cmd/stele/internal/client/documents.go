package client

// DocumentVersion is the apiVersion of the JSON and YAML documents that commands print.
const DocumentVersion = "client.stele.dev/v1"

// TimeLayout is the layout of printed times. Users can also write moments in it.
const TimeLayout = "2006-01-02 15:04:05Z07:00"
