-- Whether studies ended when it was foretold isn't counted any more.
DROP TABLE foretold;
DROP TABLE foretellings;
