module flatline/docker

go 1.26
